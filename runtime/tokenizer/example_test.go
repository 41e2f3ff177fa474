package tokenizer_test

import (
	"fmt"
	"log"

	"mlxcel/runtime/tokenizer"
)

// A tokenizer.json of five tokens: words are cut before spaces, written as ▁.
const tiny = `{
  "added_tokens": [{"id": 4, "content": "<end>", "special": true, "normalized": false}],
  "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
  "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
  "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "▁hello": 1, "▁small": 2, "▁world": 3}}
}`

func Example() {
	t, err := tokenizer.Parse([]byte(tiny))
	if err != nil {
		log.Fatal(err)
	}
	ids, err := t.Encode("hello small world<end>", true)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ids)

	d := t.NewDecoder(true)
	for _, id := range ids {
		fmt.Printf("%q ", d.Add(id))
	}
	fmt.Printf("%q\n", d.Flush())
	// Output:
	// [1 2 3 4]
	// "hello" " small" " world" "" ""
}
