// Package jinja renders the chat templates that language models carry, in
// pure Go and with no dependency.
//
// It is the part of Python's Jinja2 that such templates use, set up the way
// the transformers library sets it up: trim_blocks and lstrip_blocks are on,
// so are break and continue and the generation tag; tojson prints plain JSON
// and never escapes for HTML; raise_exception, strftime_now, namespace, range,
// dict, joiner and cycler are there. Values print as Python prints them (True,
// None, 1.0, {'a': 1}), because models were trained on text made that way.
//
// A template comes with a downloaded model and is not trusted: it can change
// nothing that it was given, and steps, memory, output, nesting and calls are
// limited (see [Limits]). Every error names the template's line.
//
// Left out, since a chat template has no use for them: include, import and
// extends (there is one template only), automatic HTML escaping, and the
// filters filesizeformat, pprint, random, striptags, urlize, wordwrap and
// xmlattr. A filter or test that does not exist is an error when it is
// reached, not when the template is compiled.
package jinja
