package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Errors to be told apart with errors.Is. The message of what wraps them says what to do.
var (
	ErrNotCached = errors.New("the model is not downloaded")
	ErrOffline   = errors.New("the network must not be used")
	ErrNotFound  = errors.New("not found")
	ErrDenied    = errors.New("access is denied")
	ErrDamaged   = errors.New("what arrived is damaged")
	ErrNoSpace   = errors.New("there is not enough space")
)

// errNoSuchModel is ErrNotFound for a whole model.
var errNoSuchModel = fmt.Errorf("the model is %w", ErrNotFound)

// permanentError will not go away by trying again.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

func permanent(err error) error { return permanentError{err} }

// statusError is an answer that is no success.
type statusError struct {
	host    string
	status  int
	code    string // the Hub's word for what is wrong
	message string // the Hub's sentence
	wait    time.Duration
}

func newStatusError(r *http.Response, u *url.URL) *statusError {
	return &statusError{
		host: u.Host, status: r.StatusCode,
		code: printable(r.Header.Get("X-Error-Code"), 60), message: printable(r.Header.Get("X-Error-Message"), 300),
		wait: retryAfter(r.Header.Get("Retry-After"), time.Now()),
	}
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("%s answers %d %s", e.host, e.status, http.StatusText(e.status))
	if e.message != "" {
		text += fmt.Sprintf(" (%s)", e.message)
	}
	return text
}

// printable bounds a text of a server and takes out what could play with a terminal.
func printable(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if runes := []rune(text); len(runes) > limit {
		text = string(runes[:limit]) + "…"
	}
	return strings.TrimRight(text, ". ")
}

// maxRetryAfter bounds how long a server may make us wait.
const maxRetryAfter = 5 * time.Minute

// retryAfter reads a Retry-After header: seconds or a date. What cannot be read is 0.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(date.Sub(now), 0)
	}
	return 0
}

// temporary reports whether trying again may help, and how long the server wants to be left alone before.
func temporary(err error) (again bool, wait time.Duration) {
	var (
		status      *statusError
		forever     permanentError
		certificate *tls.CertificateVerificationError
		name        *net.DNSError
		path        *fs.PathError
		link        *os.LinkError
	)
	switch {
	case errors.As(err, &status):
		s := status.status
		return s == http.StatusRequestTimeout || s == http.StatusTooManyRequests || s >= 500 && s != http.StatusNotImplemented, status.wait
	case errors.As(err, &forever), errors.As(err, &certificate), errors.As(err, &path), errors.As(err, &link), errors.Is(err, context.Canceled):
		return false, 0
	case errors.As(err, &name):
		return !name.IsNotFound, 0
	}
	return true, 0
}

// explain makes the error of a request for a model one that says what to do.
func explain(err error, model, revision string, base *url.URL, hasToken bool) error {
	var (
		status      *statusError
		certificate *tls.CertificateVerificationError
		network     net.Error
	)
	page := base.String() + "/" + model
	switch {
	case errors.As(err, &certificate):
		return fmt.Errorf("%w: if a proxy here reads https, name the file of its certificate in MLXCEL_EXTRA_CA_CERTS", err)
	case errors.As(err, &network) || errors.Is(err, errStalled):
		return fmt.Errorf("the Hub cannot be reached: %w: check the network and HTTPS_PROXY, or use --offline with what is downloaded", err)
	case !errors.As(err, &status):
		return err
	}
	token := "if it is private, give a token with HF_TOKEN or --token"
	if hasToken {
		token = "if it is private, check that your token may read it"
	}
	switch {
	case status.code == "RevisionNotFound":
		return fmt.Errorf("%w: %s has no revision %q: see %s/tree/main for those that there are", ErrNotFound, model, revision, page)
	case status.code == "EntryNotFound":
		return fmt.Errorf("%w: a file of %s is gone: try again, since the model may just have changed", ErrNotFound, model)
	case status.code == "GatedRepo":
		return fmt.Errorf("%w: %s is given only to those who accept its terms: do so at %s, and give your token with HF_TOKEN or --token", ErrDenied, model, page)
	case status.status == http.StatusUnauthorized && hasToken && status.code == "":
		return fmt.Errorf("%w: the Hub does not accept the token, or there is no model %s for it: check both: %w", ErrDenied, model, err)
	case status.status == http.StatusNotFound, status.status == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s is not on %s, or not for everybody: check the name; %s", errNoSuchModel, model, base.Host, token)
	case status.status == http.StatusForbidden:
		return fmt.Errorf("%w: %w: check at %s what your token may read", ErrDenied, err, page)
	case status.status == http.StatusTooManyRequests:
		return fmt.Errorf("%w: the Hub wants fewer requests: wait some minutes, then the same command goes on; a token (HF_TOKEN) raises the limit", err)
	}
	return err
}
