package server

import (
	"container/list"
	"sync"

	"mlxcel/runtime"
)

// store keeps responses for previous_response_id and GET, within bounds: where there are too many, the one that was not
// used for the longest time goes. It is memory only and is gone when the server ends.
type store struct {
	most      int
	mostBytes int64

	mu    sync.Mutex
	byID  map[string]*list.Element
	order list.List // of *storedResponse, the last used one in front
	bytes int64
}

// storedResponse is a response with the conversation that led to it and its own messages.
type storedResponse struct {
	response response
	input    []any             // items of the request, as they came
	messages []runtime.Message // all, those of earlier responses included
	bytes    int64             // that it keeps from being freed: texts that responses share count for each
}

func newStore(most int, mostBytes int64) *store {
	return &store{most: most, mostBytes: mostBytes, byID: map[string]*list.Element{}}
}

// add keeps a response, unless it alone is too large.
func (s *store) add(r *storedResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.bytes > s.mostBytes {
		return
	}
	s.byID[r.response.ID] = s.order.PushFront(r)
	s.bytes += r.bytes
	for s.order.Len() > s.most || s.bytes > s.mostBytes {
		s.drop(s.order.Back())
	}
}

// get returns a response, nil if it is not there.
func (s *store) get(id string) *storedResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byID[id]
	if !ok {
		return nil
	}
	s.order.MoveToFront(e)
	return e.Value.(*storedResponse)
}

// remove forgets a response and reports whether it was there.
func (s *store) remove(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byID[id]
	if ok {
		s.drop(e)
	}
	return ok
}

func (s *store) drop(e *list.Element) {
	r := s.order.Remove(e).(*storedResponse)
	delete(s.byID, r.response.ID)
	s.bytes -= r.bytes
}

// size is how many responses are kept, and their bytes.
func (s *store) size() (n int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order.Len(), s.bytes
}
