"""Learners: what predicts and what learns. A population (PoLRS) is a learner made of several."""
