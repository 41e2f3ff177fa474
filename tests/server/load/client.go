package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

type config struct {
	url    string
	time   time.Duration
	tokens int
	long   int
	run    int64 // a number in all prompts
	silent int   // the ids below are of tokens without text
}

// check refuses what is out of bounds, other machines above all.
func (c config) check() error {
	u, err := url.Parse(c.url)
	if err != nil || u.Hostname() == "" {
		return fmt.Errorf("--url is %q, want an address such as http://127.0.0.1:8080", c.url)
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--url is %q, want this machine: 127.0.0.1, ::1 or localhost", c.url)
	}
	if c.time <= 0 || c.time > maxTime {
		return fmt.Errorf("--time is %s, want more than 0 and at most %s", c.time, maxTime)
	}
	if c.tokens < 1 || c.tokens > 4096 {
		return fmt.Errorf("--tokens is %d, want 1 to 4096", c.tokens)
	}
	if c.silent < 0 || c.silent > 300 {
		return fmt.Errorf("--silent is %d, want 0 to 300", c.silent)
	}
	return nil
}

// measure lets n clients ask until the time is over; answers that are being made then are waited for.
func (c config) measure(ctx context.Context, n int) *result {
	r := &result{}
	begin := time.Now()
	// A connection for each request: llama-server closes kept ones while a request is on its way.
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: c.time + 5*time.Minute}
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			for k := 0; time.Since(begin) < c.time && ctx.Err() == nil; k++ {
				answer, err := c.ask(ctx, client, i, k)
				if ctx.Err() != nil {
					return // stopped by hand
				}
				r.add(answer, err)
			}
		})
	}
	group.Wait()
	r.took = time.Since(begin)
	return r
}

// answer is what was measured of one request.
type answer struct {
	first  time.Duration   // to the first token
	gaps   []time.Duration // between tokens
	tokens int
}

// prompt is the k-th one of a client: all differ from their beginning on, and from those of other runs, so that none is
// answered from a cache.
func (c config) prompt(client, k int) string {
	short := fmt.Sprintf("%d: question %d of client %d: name three things that are %d metres long.", c.run, k, client, k%97+1)
	if c.long == 0 || (client+k)%c.long != c.long-1 {
		return short
	}
	return short + strings.Repeat(" The quick brown fox jumps over the lazy dog near the river bank today.", 37)
}

func (c config) ask(ctx context.Context, client *http.Client, i, k int) (*answer, error) {
	// A token without text would look like a pause, and only some servers leave the end tokens out with ignore_eos.
	banned := map[string]int{}
	for id := range c.silent {
		banned[strconv.Itoa(id)] = -100
	}
	body, _ := json.Marshal(map[string]any{
		"messages": []map[string]string{{"role": "user", "content": c.prompt(i, k)}}, "max_tokens": c.tokens, "temperature": 0.8, "seed": 1000*i + k,
		"ignore_eos": true, // so that servers do the same work, whatever the answers are
		"logit_bias": banned,
		"stream":     true, "stream_options": map[string]bool{"include_usage": true},
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	begin := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return nil, fmt.Errorf("status %d: %s", response.StatusCode, bytes.TrimSpace(text))
	}
	return read(response.Body, begin)
}

// read reads a stream to its end.
func read(body io.Reader, begin time.Time) (*answer, error) {
	a := &answer{}
	var last time.Time
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			if a.tokens == 0 {
				return nil, errors.New("the stream has no usage")
			}
			return a, nil
		}
		var chunk struct {
			Error json.RawMessage
			Usage *struct {
				CompletionTokens int `json:"completion_tokens"`
			}
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return nil, err
		}
		if chunk.Error != nil {
			return nil, fmt.Errorf("an error within the stream: %s", chunk.Error)
		}
		if chunk.Usage != nil {
			a.tokens = chunk.Usage.CompletionTokens
		}
		if len(chunk.Choices) == 0 || chunk.Choices[0].Delta.Content == "" {
			continue
		}
		now := time.Now()
		if last.IsZero() {
			a.first = now.Sub(begin)
		} else {
			a.gaps = append(a.gaps, now.Sub(last))
		}
		last = now
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return nil, errors.New("the stream ends without [DONE]")
}
