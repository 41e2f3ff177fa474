package hub

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	maxRedirects   = 8
	maxErrorBody   = 64 << 10
	userAgent      = "mlxcel"
	connectTimeout = 10 * time.Second
)

// client talks to one Hub.
type client struct {
	base     *url.URL
	token    string
	http     *http.Client
	stall    time.Duration // longest silence of a server
	backoff  time.Duration // first wait before a request is made again
	retrying func(err error, wait time.Duration)
}

// newClient checks the settings. Proxies are those of the environment. Connections are HTTP/1.1, since the many streams
// of one HTTP/2 connection are no faster than one.
func newClient(s Settings, stall, backoff time.Duration, connections int) (*client, error) {
	base, err := s.base()
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    connectTimeout,
		MaxIdleConnsPerHost:    connections,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 256 << 10,
		ReadBufferSize:         64 << 10,
		DisableCompression:     true,
		Protocols:              protocols,
	}
	if s.CAFile != "" {
		roots, err := rootsWith(s.CAFile)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	never := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{
		base: base, token: s.Token, stall: stall, backoff: backoff, retrying: func(error, time.Duration) {},
		http: &http.Client{Transport: transport, CheckRedirect: never},
	}, nil
}

// rootsWith returns the system's certificates and those of a file.
func rootsWith(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the extra certificates cannot be read: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificates in PEM form", path)
	}
	return roots, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// address returns the address of a path that is escaped already.
func (c *client) address(escaped string) *url.URL {
	u, err := c.base.Parse(strings.TrimRight(c.base.EscapedPath(), "/") + escaped)
	if err != nil { // not with what url.PathEscape makes
		panic(err)
	}
	return u
}

// listingAddress is that of the files of a revision.
func (c *client) listingAddress(model, revision string) *url.URL {
	return c.address("/api/models/" + model + "/revision/" + url.PathEscape(revision) + "?blobs=true")
}

// fileAddress is that of a file's contents.
func (c *client) fileAddress(model, commit, path string) *url.URL {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return c.address("/" + model + "/resolve/" + commit + "/" + strings.Join(parts, "/"))
}

// hops says which redirects are followed.
type hops int

const (
	relativeHops hops = iota // those that name no host: the rest of the answer is about the file itself
	allHops
)

// request makes a request and follows redirects; the error of an answer that is no success is a *statusError. The
// body ends with errStalled when the server is silent for too long.
func (c *client) request(ctx context.Context, method string, u *url.URL, header http.Header, follow hops) (*http.Response, error) {
	for range maxRedirects {
		response, err := c.send(ctx, method, u, header)
		if err != nil {
			return nil, err
		}
		location := response.Header.Get("Location")
		if response.StatusCode/100 != 3 || location == "" {
			return c.success(response, u)
		}
		next, err := u.Parse(location)
		if err != nil {
			response.Body.Close()
			return nil, fmt.Errorf("%s redirects to an address that is none", u.Host)
		}
		if follow == relativeHops && isAbsolute(location) {
			return response, nil
		}
		response.Body.Close()
		if next.Scheme != "http" && next.Scheme != "https" || u.Scheme == "https" && next.Scheme == "http" {
			return nil, permanent(fmt.Errorf("%s redirects to the unprotected or unknown scheme %q: that is not followed", u.Host, next.Scheme))
		}
		u = next
	}
	return nil, permanent(fmt.Errorf("%s redirects in circles", c.base.Host))
}

// isAbsolute reports whether a Location names a host, as "//host/path" does too.
func isAbsolute(location string) bool {
	u, err := url.Parse(location)
	return err != nil || u.Scheme != "" || u.Host != ""
}

// send makes one request. The token goes with those to the endpoint only.
func (c *client) send(ctx context.Context, method string, u *url.URL, header http.Header) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch := time.AfterFunc(c.stall, func() { cancel(errStalled) })
	end := func() {
		watch.Stop()
		cancel(nil)
	}
	request, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		end()
		return nil, permanent(err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	request.Header.Set("User-Agent", userAgent)
	request.Header.Set("Accept-Encoding", "identity")
	if c.token != "" && sameOrigin(u, c.base) {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		end()
		if context.Cause(ctx) == errStalled {
			err = errStalled
		}
		return nil, plain(err, u)
	}
	response.Body = &watched{response.Body, ctx, watch, c.stall, end}
	return response, nil
}

// plain takes the address out of an error of net/http: that of a redirect holds signatures.
func plain(err error, u *url.URL) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("%s: %w", u.Host, err)
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// success returns the response if it is one, else its error.
func (c *client) success(response *http.Response, u *url.URL) (*http.Response, error) {
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxErrorBody) // so that the connection can be used again
	return nil, newStatusError(response, u)
}

// getAll reads a whole answer of at most limit bytes.
func (c *client) getAll(ctx context.Context, u *url.URL, limit int64) (body []byte, err error) {
	err = c.again(ctx, func() (bool, error) {
		response, err := c.request(ctx, http.MethodGet, u, nil, allHops)
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		body, err = io.ReadAll(io.LimitReader(response.Body, limit+1))
		if int64(len(body)) > limit {
			return false, permanent(fmt.Errorf("%s answers with more than the %d bytes that are sensible", u.Host, limit))
		}
		return false, err
	})
	return body, err
}

var errStalled = errors.New("the server sent nothing for too long")

// watched is a body that may not be silent for long.
type watched struct {
	io.ReadCloser
	ctx   context.Context
	watch *time.Timer
	stall time.Duration
	end   func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		w.watch.Reset(w.stall)
	}
	if err != nil && err != io.EOF && context.Cause(w.ctx) == errStalled {
		err = errStalled
	}
	return n, err
}

func (w *watched) Close() error {
	w.end()
	return w.ReadCloser.Close()
}
