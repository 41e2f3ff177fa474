package server

import (
	"embed"
	"net/http"
	"path"

	"github.com/gorilla/mux"
)

// The chat page. It loads nothing from anywhere else.
//
//go:embed page
var pageFiles embed.FS

// pagePolicy forbids the page everything but its own files and the server's API.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// pageTypes are the content types by the end of a name: the system's own table is not to be relied on.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

// page answers GET / and the files of the page.
func (s *Server) page(w http.ResponseWriter, r *http.Request) error {
	name := mux.Vars(r)["file"]
	if name == "" {
		name = "index.html"
	}
	text, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		return s.notFound(w, r)
	}
	h := w.Header()
	h.Set("Content-Type", pageTypes[path.Ext(name)])
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // a new version of the server has a new page
	_, err = w.Write(text)
	return err
}
