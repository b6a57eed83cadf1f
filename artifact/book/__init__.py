"""What pages are made from: facts and templates.

facts     name → value, from the records of a GPU, shipped beside them
text      a chapter's Markdown template, rendered block by block with its facts
"""
