package server

import (
	"net/http"

	"github.com/gorilla/mux"
)

// modelInfo is a model in the form of OpenAI's API, with what llama-server adds.
type modelInfo struct {
	ID      string    `json:"id"`
	Object  string    `json:"object"`
	Created int64     `json:"created"`
	OwnedBy string    `json:"owned_by"`
	Meta    modelMeta `json:"meta"`
}

type modelMeta struct {
	Context    int   `json:"n_ctx"`
	Vocabulary int   `json:"n_vocab"`
	Bytes      int64 `json:"size"`
}

func (l *loaded) info() modelInfo {
	facts := l.Facts()
	return modelInfo{l.id, "model", l.created, "mlxcel", modelMeta{facts.MaxTokens, l.vocab, facts.WeightBytes}}
}

// listModels answers GET /v1/models. While the model is loading, there is none.
func (s *Server) listModels(w http.ResponseWriter, _ *http.Request) error {
	list := []modelInfo{}
	if l, err := s.model(); err == nil {
		list = append(list, l.info())
	}
	s.writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
	return nil
}

// getModel answers GET /v1/models/{id}; ids may have slashes.
func (s *Server) getModel(w http.ResponseWriter, r *http.Request) error {
	l, err := s.model()
	if err != nil {
		return err
	}
	if id := mux.Vars(r)["id"]; id != l.id && id != "default" {
		e := badRequest(http.StatusNotFound, "model_not_found", "the model %s does not exist: there is %q", shorten(id), l.id)
		e.param = "model"
		return e
	}
	s.writeJSON(w, http.StatusOK, l.info())
	return nil
}
