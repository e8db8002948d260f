"""The XPath engine: which XPath constraints an XML document satisfies.

`document` decides which XML is read; `syntax` parses XPath, `limits` refuses what costs too much, `rewrite` and `shape`
bring it into one form, `template` reads texts that differ in literals. `walk`, `reads`, `groups`, `tables`,
`comparison`, `substrings` and `number` answer for all constraints in one pass over a document. `cover`, `explain` and
`snapshot` as in other engines.
May import: base.
"""
