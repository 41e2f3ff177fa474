package tokenizer

// shortWord is up to how many symbols looking at every pair anew beats a heap.
const shortWord = 48

// mergeAll merges ids in place, lowest rank first and leftmost first among
// equals, and returns what is left.
func mergeAll(ids []int32, merges map[idPair]merge) []int32 {
	if len(ids) <= shortWord {
		return mergeShort(ids, merges)
	}
	return mergeLong(ids, merges)
}

func mergeShort(ids []int32, merges map[idPair]merge) []int32 {
	var buf [shortWord]merge
	next := buf[:max(0, len(ids)-1)] // next[i] is the merge of ids[i] and ids[i+1]
	lookup := func(i int) merge {
		if m, ok := merges[makePair(ids[i], ids[i+1])]; ok {
			return m
		}
		return merge{rank: -1}
	}
	for i := range next {
		next[i] = lookup(i)
	}
	for {
		best := -1
		for i, m := range next {
			if m.rank >= 0 && (best < 0 || m.rank < next[best].rank) {
				best = i
			}
		}
		if best < 0 {
			return ids
		}
		ids[best] = next[best].id
		ids = append(ids[:best+1], ids[best+2:]...)
		next = append(next[:best], next[best+1:]...)
		if best < len(next) {
			next[best] = lookup(best)
		}
		if best > 0 {
			next[best-1] = lookup(best - 1)
		}
	}
}

// symbol is a link in the list of a long word's symbols.
type symbol struct {
	id         int32 // -1: merged into the symbol before it
	prev, next int32 // -1: none
}

// candidate is a pair that could be merged when it was found.
type candidate struct {
	merge
	pos         int32 // index of the left symbol
	left, right int32 // ids; if they changed, the candidate is stale
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.pos < d.pos
}

// mergeLong does the same in n log n steps.
func mergeLong(ids []int32, merges map[idPair]merge) []int32 {
	symbols := make([]symbol, len(ids))
	for i, id := range ids {
		symbols[i] = symbol{id, int32(i) - 1, int32(i) + 1}
	}
	symbols[len(ids)-1].next = -1

	queue := make(candidateHeap, 0, len(ids))
	consider := func(pos int32) {
		if pos < 0 || symbols[pos].next < 0 {
			return
		}
		left, right := symbols[pos].id, symbols[symbols[pos].next].id
		if m, ok := merges[makePair(left, right)]; ok {
			queue.push(candidate{m, pos, left, right})
		}
	}
	for i := range ids {
		consider(int32(i))
	}
	for len(queue) > 0 {
		c := queue.pop()
		s := &symbols[c.pos]
		if s.id != c.left || s.next < 0 || symbols[s.next].id != c.right {
			continue
		}
		gone := s.next
		s.id = c.id
		s.next = symbols[gone].next
		symbols[gone].id = -1
		if s.next >= 0 {
			symbols[s.next].prev = c.pos
		}
		consider(s.prev)
		consider(c.pos)
	}

	out := ids[:0]
	for i := int32(0); i >= 0; i = symbols[i].next {
		out = append(out, symbols[i].id)
	}
	return out
}

// candidateHeap is a binary heap with the best candidate at 0.
type candidateHeap []candidate

func (h *candidateHeap) push(c candidate) {
	q := append(*h, c)
	i := len(q) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !c.before(q[parent]) {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = c
	*h = q
}

func (h *candidateHeap) pop() candidate {
	q := *h
	best := q[0]
	last := q[len(q)-1]
	q = q[:len(q)-1]
	*h = q
	if len(q) == 0 {
		return best
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1].before(q[child]) {
			child++
		}
		if !q[child].before(last) {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = last
	return best
}
