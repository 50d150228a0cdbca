"""Sixty-four sentences of everyday length, and longer ones made of them."""

FRAMES = (
    "How can I learn {} without spending too much money?",
    "What is the best way to get better at {} when I only have an hour a day?",
    "My brother started {} last summer and he says it changed his life.",
    "Is {} really good for your health, or is that only what people say?",
    "The city council wants to pay for {} in every school from next year on.",
    "Why do so many people give up {} after a few weeks?",
    "A new study shows that {} helps older people to remember names and faces.",
    "She wrote a long letter about {} to the editor of the local newspaper.",
)
SUBJECTS = (
    "cooking",
    "playing the guitar",
    "swimming in cold water",
    "gardening",
    "speaking a foreign language",
    "photography",
    "playing chess",
    "running long distances",
)
SENTENCES = tuple(frame.format(subject) for subject in SUBJECTS for frame in FRAMES)


def of_length(words: int, start: int = 0) -> str:
    """A text of about so many words."""
    endless = " ".join(SENTENCES[start % 64 :] + SENTENCES * (1 + words // 500))
    return " ".join(endless.split()[:words])
