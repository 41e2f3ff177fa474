package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/server/servertest"
)

func TestKeys(t *testing.T) {
	f := start(t, func(o *Options, _ *servertest.Model) { o.Keys = []string{"first-key", "second-key"} })
	for _, test := range []struct {
		header http.Header
		ok     bool
	}{
		{http.Header{"Authorization": {"Bearer first-key"}}, true},
		{http.Header{"Authorization": {"bearer second-key"}}, true},
		{http.Header{"X-Api-Key": {"second-key"}}, true},
		{nil, false},
		{http.Header{"Authorization": {"Bearer "}}, false},
		{http.Header{"Authorization": {"Bearer first-ke"}}, false},
		{http.Header{"Authorization": {"Bearer first-key2"}}, false},
		{http.Header{"Authorization": {"Basic first-key"}}, false},
		{http.Header{"X-Api-Key": {""}}, false},
	} {
		for _, path := range []string{"/v1/models", "/metrics", "/props", "/slots", "/v1/nothing"} {
			status, header, text := f.send(t, "GET", path, "", test.header)
			if test.ok {
				require.NotEqual(t, 401, status)
				continue
			}
			require.Equal(t, 401, status, "%v", test.header)
			require.Equal(t, "Bearer", header.Get("WWW-Authenticate"))
			e := parsed(t, text)["error"].(map[string]any)
			require.Equal(t, "authentication_error", e["type"])
			require.Equal(t, "invalid_api_key", e["code"])
		}
	}
	for _, path := range []string{"/", "/page/chat.js", "/health", "/v1/health"} {
		status, _ := f.get(t, path)
		require.Equal(t, 200, status, "%s needs no key", path)
	}
	require.NotContains(t, f.log.String(), "first-key")
}

// Web pages of other origins can do nothing, unless they are allowed to.
func TestOrigins(t *testing.T) {
	const own, foreign = "OWN", "https://chat.example"
	for _, test := range []struct {
		name    string
		allowed []string
		header  http.Header
		status  int
		allow   string
	}{
		{"no browser", nil, nil, 200, ""},
		{"own page", nil, http.Header{"Origin": {own}}, 200, ""},
		{"own page behind a proxy", nil, http.Header{"Origin": {foreign}, "Sec-Fetch-Site": {"same-origin"}}, 200, ""},
		{"foreign page", nil, http.Header{"Origin": {foreign}, "Sec-Fetch-Site": {"cross-site"}}, 403, ""},
		{"sandboxed page", nil, http.Header{"Origin": {"null"}}, 403, ""},
		{"other foreign page", []string{"https://other.example"}, http.Header{"Origin": {foreign}}, 403, ""},
		{"allowed page", []string{"https://other.example", foreign}, http.Header{"Origin": {foreign}}, 200, foreign},
		{"all pages", []string{"*"}, http.Header{"Origin": {foreign}}, 200, "*"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := start(t, func(o *Options, _ *servertest.Model) { o.Origins = test.allowed; o.Keys = []string{"key"} })
			header := http.Header{"Authorization": {"Bearer key"}}
			for k, v := range test.header {
				header[k] = []string{strings.Replace(v[0], own, f.url, 1)}
			}
			status, got, _ := f.send(t, "POST", "/tokenize", `{"content":"a"}`, header)
			require.Equal(t, test.status, status)
			require.Equal(t, test.allow, got.Get("Access-Control-Allow-Origin"))

			header.Del("Authorization") // browsers ask without it
			header.Set("Access-Control-Request-Method", "POST")
			header.Set("Access-Control-Request-Headers", "authorization, content-type")
			status, got, _ = f.send(t, "OPTIONS", "/v1/chat/completions", "", header)
			if test.status == 200 {
				require.Equal(t, 204, status)
			} else {
				require.Equal(t, 403, status)
			}
			if test.allow != "" {
				require.Contains(t, got.Get("Access-Control-Allow-Methods"), "POST")
				require.Equal(t, "authorization, content-type", got.Get("Access-Control-Allow-Headers"))
			}
		})
	}
}

// Ids are returned and logged; what anyone wrote is not.
func TestRequestIDsAndLog(t *testing.T) {
	f := start(t, nil)
	_, header, _ := f.send(t, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"my secret"}]}`, http.Header{"X-Request-Id": {"abc-1.2_3"}})
	require.Equal(t, "abc-1.2_3", header.Get("X-Request-Id"))
	require.Contains(t, f.log.String(), `"request":"abc-1.2_3"`)
	require.Contains(t, f.log.String(), `"route":"/v1/chat/completions","status":200`)
	for _, id := range []string{"a b", "é", strings.Repeat("x", 65), `a"b`} {
		_, header, _ = f.send(t, "GET", "/v1/models/my-secret", "", http.Header{"X-Request-Id": {id}})
		require.Regexp(t, `^req_\d+$`, header.Get("X-Request-Id"), id)
	}
	f.get(t, "/my-secret?q=secret")
	require.NotContains(t, f.log.String(), "secret")
}
