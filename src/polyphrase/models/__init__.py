"""Complete systems: a backbone, a latent, and how z meets the network."""
