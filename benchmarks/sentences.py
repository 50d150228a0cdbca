"""Sixty-four sentences of everyday length, three rewrites of each, and longer ones made of them."""

FRAMES = {
    "How can I learn {} without spending too much money?": (
        "What is a cheap way to learn {}?",
        "How do I learn {} if I do not want to spend much money?",
        "Can I learn {} without paying a lot for it?",
    ),
    "What is the best way to get better at {} when I only have an hour a day?": (
        "How can I improve at {} with only an hour a day?",
        "I have one hour a day: how do I get better at {}?",
        "With just an hour a day, what is the best way to improve at {}?",
    ),
    "My brother started {} last summer and he says it changed his life.": (
        "My brother says that {} has changed his life since he started last summer.",
        "Last summer my brother took up {}, and he says his life is different now.",
        "According to my brother, who started {} last summer, it changed his life.",
    ),
    "Is {} really good for your health, or is that only what people say?": (
        "People say that {} is good for your health, but is that true?",
        "Does {} really do your health any good, or do people just say so?",
        "Is it true that {} is healthy, or is it only talk?",
    ),
    "The city council wants to pay for {} in every school from next year on.": (
        "From next year on, the city council wants to fund {} in all schools.",
        "The council plans to pay for {} in every school of the city, starting next year.",
        "Starting next year, {} in every school is to be paid for by the city council.",
    ),
    "Why do so many people give up {} after a few weeks?": (
        "Why is it that so many people stop {} after only a few weeks?",
        "What makes so many people quit {} within a few weeks?",
        "After a few weeks, many people give up {}: why?",
    ),
    "A new study shows that {} helps older people to remember names and faces.": (
        "According to a new study, older people remember names and faces better with {}.",
        "Older people who try {} remember names and faces better, a new study shows.",
        "A new study finds that {} improves the memory of older people for names and faces.",
    ),
    "She wrote a long letter about {} to the editor of the local newspaper.": (
        "She sent the editor of the local newspaper a long letter about {}.",
        "The editor of the local newspaper got a long letter about {} from her.",
        "A long letter about {} was what she wrote to the local newspaper's editor.",
    ),
}
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
REFERENCES = tuple(
    [rewrite.format(subject) for rewrite in rewrites]
    for subject in SUBJECTS
    for rewrites in FRAMES.values()
)


def of_length(words: int, start: int = 0) -> str:
    """A text of about so many words."""
    endless = " ".join(SENTENCES[start % 64 :] + SENTENCES * (1 + words // 500))
    return " ".join(endless.split()[:words])
