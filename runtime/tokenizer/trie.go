package tokenizer

// trie stores strings as paths of bytes from node 0.
type trie struct {
	edges map[uint64]int32 // node<<8 | byte -> next node
	ids   []int32          // by node: the id of the string that ends here, -1
}

func newTrie() *trie {
	return &trie{edges: map[uint64]int32{}, ids: []int32{-1}}
}

func (t *trie) insert(text string, id int32) {
	node := int32(0)
	for i := range len(text) {
		key := uint64(node)<<8 | uint64(text[i])
		next, ok := t.edges[key]
		if !ok {
			next = int32(len(t.ids))
			t.edges[key] = next
			t.ids = append(t.ids, -1)
		}
		node = next
	}
	t.ids[node] = id
}

// step follows one byte; the second result is false where no string goes on.
func (t *trie) step(node int32, b byte) (int32, bool) {
	next, ok := t.edges[uint64(node)<<8|uint64(b)]
	return next, ok
}

// longest returns the longest stored string that text begins with, as its id
// and length; the length is 0 when there is none.
func (t *trie) longest(text string) (id int32, length int) {
	node := int32(0)
	for i := range len(text) {
		next, ok := t.step(node, text[i])
		if !ok {
			break
		}
		node = next
		if t.ids[node] >= 0 {
			id, length = t.ids[node], i+1
		}
	}
	return id, length
}
