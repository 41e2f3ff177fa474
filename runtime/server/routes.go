package server

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"
)

// routes is the table of everything that the server answers.
func (s *Server) routes() *mux.Router {
	r := mux.NewRouter().SkipClean(true)
	add := func(method string, handle handlerFunc, paths ...string) {
		for _, path := range paths {
			methods := []string{method}
			if method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
			r.Handle(path, s.route(path, handle)).Methods(methods...)
		}
	}
	// OpenAI's shape, with and without its prefix.
	openAI := func(method, path string, handle handlerFunc) { add(method, handle, "/v1"+path, path) }
	openAI("POST", "/chat/completions", s.chat)
	openAI("POST", "/completions", s.completions)
	openAI("POST", "/responses", s.responses)
	openAI("GET", "/responses/{id}", s.getResponse)
	openAI("GET", "/responses/{id}/input_items", s.getResponseInput)
	openAI("DELETE", "/responses/{id}", s.deleteResponse)
	openAI("POST", "/embeddings", s.embeddings)
	openAI("GET", "/models", s.listModels)
	openAI("GET", "/models/{id:.+}", s.getModel)

	// llama-server's shape.
	add("POST", s.tokenize, "/tokenize")
	add("POST", s.detokenize, "/detokenize")
	add("POST", s.applyTemplate, "/apply-template")
	add("GET", s.health, "/health", "/v1/health")
	add("GET", s.props, "/props")
	add("GET", s.slots, "/slots")
	if s.options.Metrics {
		add("GET", s.showMetrics, "/metrics")
	}
	if s.options.Page {
		add("GET", s.page, "/", "/page/{file}")
	}
	r.NotFoundHandler = s.route("unknown", s.notFound)
	r.MethodNotAllowedHandler = s.route("unknown", s.notAllowed)
	return r
}

// route makes a handler that answers with the error that handle returns. Its path names it in logs and metrics.
func (s *Server) route(path string, handle handlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		exchangeOf(r).route = path
		err := handle(w, r)
		switch {
		case err == nil:
		case abandoned(r, err):
			exchangeOf(r).gone = true
		default:
			s.writeError(w, err)
		}
	})
}

func (s *Server) notFound(_ http.ResponseWriter, r *http.Request) error {
	return badRequest(http.StatusNotFound, "unknown_url", "there is nothing at %s %s", r.Method, shorten(r.URL.Path))
}

func (s *Server) notAllowed(w http.ResponseWriter, r *http.Request) error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete} {
		other := *r
		other.Method = method
		var match mux.RouteMatch
		if s.router.Match(&other, &match) && match.MatchErr == nil && match.Route != nil {
			allowed = append(allowed, method)
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return badRequest(http.StatusMethodNotAllowed, "method_not_allowed", "%s is not possible here: use %s", r.Method, strings.Join(allowed, " or "))
}
