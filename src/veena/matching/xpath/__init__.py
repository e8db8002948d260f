"""The XPath engine: which XPath constraints an XML document satisfies.

`document` decides which XML is read; `syntax` parses XPath, `limits` checks types and says what an evaluation costs at
most, `required` names an element without which it is false; `rewrite` and `shape` bring it into one form, `template`
reads texts that differ in literals. `walk` and `reads` collect a document's values in one pass; `groups` and `tables`
(sorted constants, masks of profiles), `comparison`, `substrings` and `number` answer for all constraints of a form at
once. `cover`, `explain` and `snapshot` as in other engines.
The index of the condition languages is in `index`.
May import: base.
"""
