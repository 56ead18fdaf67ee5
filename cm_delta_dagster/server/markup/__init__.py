"""Answers in HTML: the templates of the page and its style sheet, which every process reads once."""
