package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// keyRing are the keys that clients may come with, as hashes: so comparing takes the same time whatever a wrong key has
// in common with a right one, its length included.
type keyRing [][sha256.Size]byte

func newKeyRing(keys []string) keyRing {
	var ring keyRing
	for _, k := range keys {
		ring = append(ring, sha256.Sum256([]byte(k)))
	}
	return ring
}

// has reports whether a key is one of the ring; all of them are looked at.
func (ring keyRing) has(key string) bool {
	hash := sha256.Sum256([]byte(key))
	found := 0
	for i := range ring {
		found |= subtle.ConstantTimeCompare(hash[:], ring[i][:])
	}
	return found == 1
}

// open are the paths that need no key: they tell nothing about what the server is used for.
func open(path string) bool {
	return path == "/" || strings.HasPrefix(path, "/page/") || path == "/health" || path == "/v1/health"
}

// guarded lets requests through that have a key, where one is needed, and that no foreign web page sent.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.allowOrigin(w, r) {
			s.writeError(w, &apiError{
				status: http.StatusForbidden, kind: permission, code: "origin_not_allowed",
				message: "web pages of this origin may not call the server: start it with --cors-origin to allow them",
			})
			return
		}
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			w.WriteHeader(http.StatusNoContent) // what may follow is asked for with a key
			return
		}
		if len(s.keys) > 0 && !open(r.URL.Path) && !s.keys.has(givenKey(r)) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			s.writeError(w, &apiError{
				status: http.StatusUnauthorized, kind: authentication, code: "invalid_api_key",
				message: "the API key is missing or wrong: send it as Authorization: Bearer KEY",
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func givenKey(r *http.Request) string {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(key)
	}
	return r.Header.Get("X-Api-Key")
}

// allowOrigin reports whether a request may be answered as far as the web page is concerned that sent it, and tells the
// browser so. A browser sends simple requests without asking: those of foreign pages must not make the model work.
func (s *Server) allowOrigin(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	all := slices.Contains(s.options.Origins, "*")
	if len(s.options.Origins) > 0 && !all {
		w.Header().Add("Vary", "Origin")
	}
	switch {
	case origin == "":
		return true // no browser, or nothing that changes anything
	case all, slices.Contains(s.options.Origins, origin):
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		if all {
			h.Set("Access-Control-Allow-Origin", "*")
		}
		h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
		if r.Method == http.MethodOptions {
			h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
			h.Set("Access-Control-Allow-Headers", "*, Authorization") // * does not stand for Authorization
			if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
				h.Set("Access-Control-Allow-Headers", asked)
			}
			h.Set("Access-Control-Max-Age", "600")
		}
		return true
	case r.Header.Get("Sec-Fetch-Site") == "same-origin":
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && u.Host == r.Host
}
