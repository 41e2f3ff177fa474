package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync"
)

// Bounds of the word cache: at most cacheShards*shardEntries words of at most
// maxCachedWord bytes, some ten megabytes in the worst case.
const (
	cacheShards   = 32
	shardEntries  = 2048
	maxCachedWord = 64
)

// wordCache remembers the ids of words that were met before. It is safe for
// concurrent use.
type wordCache struct {
	seed   maphash.Seed
	shards [cacheShards]cacheShard
}

type cacheShard struct {
	mu    sync.Mutex
	words map[string][]int32
}

func newWordCache() *wordCache {
	return &wordCache{seed: maphash.MakeSeed()}
}

func (c *wordCache) shard(word string) *cacheShard {
	return &c.shards[maphash.String(c.seed, word)%cacheShards]
}

// get returns ids that must not be changed.
func (c *wordCache) get(word string) ([]int32, bool) {
	if len(word) > maxCachedWord {
		return nil, false
	}
	s := c.shard(word)
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, ok := s.words[word]
	return ids, ok
}

func (c *wordCache) put(word string, ids []int32) {
	if len(word) > maxCachedWord {
		return
	}
	s := c.shard(word)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.words == nil || len(s.words) >= shardEntries {
		// Starting over is simpler than tracking use, and frequent words are
		// back at once.
		s.words = make(map[string][]int32, shardEntries/4)
	}
	s.words[strings.Clone(word)] = append([]int32(nil), ids...)
}
