// Package server answers requests to a model over HTTP, in the form of OpenAI's API, with a few routes in llama-server's.
//
// A [Server] is an http.Handler. It can be made and listen before its model is loaded; [Server.Ready] hands the model
// over. What a client may send is checked field by field: a field that is known and wrong is a 400 that names it and
// says what was expected, a field that is unknown is ignored, and a field whose meaning the server cannot give is
// refused, never ignored.
package server
