package hub

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// DefaultEndpoint is the Hub itself.
const DefaultEndpoint = "https://huggingface.co"

// Settings say where the Hub and the cache are.
type Settings struct {
	Endpoint string // address of the Hub, without a path; "": DefaultEndpoint
	Token    string // to be sent to the endpoint; "": none
	Cache    string // folder
	Offline  bool   // whether the network must not be touched
	NoLinks  bool   // whether snapshots hold the files themselves even where links can be made
	CAFile   string // PEM certificates to trust beside the system's; "": none
}

// FromEnvironment reads the variables of the Hub's Python client: HF_ENDPOINT, HF_TOKEN (or HUGGING_FACE_HUB_TOKEN, or
// the file HF_TOKEN_PATH, by default token in the home folder) unless HF_HUB_DISABLE_IMPLICIT_TOKEN is set, HF_HUB_CACHE
// (or HUGGINGFACE_HUB_CACHE, by default hub in the home folder), HF_HUB_OFFLINE and HF_HUB_DISABLE_SYMLINKS. The home
// folder is HF_HOME, else huggingface in XDG_CACHE_HOME, else ~/.cache/huggingface. MLXCEL_EXTRA_CA_CERTS is the CAFile.
func FromEnvironment() (Settings, error) {
	home, err := homeFolder()
	if err != nil {
		return Settings{}, err
	}
	s := Settings{
		Endpoint: os.Getenv("HF_ENDPOINT"),
		Cache:    expand(cmp.Or(os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub"))),
		Offline:  isSet("HF_HUB_OFFLINE") || isSet("TRANSFORMERS_OFFLINE"),
		NoLinks:  isSet("HF_HUB_DISABLE_SYMLINKS"),
		CAFile:   expand(os.Getenv("MLXCEL_EXTRA_CA_CERTS")),
	}
	if !isSet("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
		if s.Token, err = environmentToken(home); err != nil {
			return Settings{}, err
		}
	}
	if s.Cache, err = filepath.Abs(s.Cache); err != nil {
		return Settings{}, fmt.Errorf("the cache folder %s: %w", s.Cache, err)
	}
	return s, nil
}

func homeFolder() (string, error) {
	if home := expand(os.Getenv("HF_HOME")); home != "" {
		return home, nil
	}
	if cache := expand(os.Getenv("XDG_CACHE_HOME")); cache != "" {
		return filepath.Join(cache, "huggingface"), nil
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("the folder for models is unknown: set HF_HOME: %w", err)
	}
	return filepath.Join(user, ".cache", "huggingface"), nil
}

// environmentToken returns "" where there is no token.
func environmentToken(home string) (string, error) {
	if token := cmp.Or(os.Getenv("HF_TOKEN"), os.Getenv("HUGGING_FACE_HUB_TOKEN")); token != "" {
		return strings.TrimSpace(token), nil
	}
	path := cmp.Or(expand(os.Getenv("HF_TOKEN_PATH")), filepath.Join(home, "token"))
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	var text []byte
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, maxToken+1))
	}
	if err != nil {
		return "", fmt.Errorf("the token cannot be read: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

const maxToken = 4096

// base checks the settings for the network and returns the endpoint.
func (s Settings) base() (*url.URL, error) {
	endpoint := strings.TrimRight(cmp.Or(s.Endpoint, DefaultEndpoint), "/")
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the endpoint is not an address like https://huggingface.co: correct HF_ENDPOINT or --endpoint")
	}
	if s.Token == "" {
		return u, nil
	}
	if len(s.Token) > maxToken || strings.ContainsFunc(s.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the token has characters that no token has: check HF_TOKEN, the token file or --token")
	}
	if u.Scheme == "http" && !isLoopback(u.Hostname()) {
		return nil, fmt.Errorf("the token would go unprotected over %s: use https, or HF_HUB_DISABLE_IMPLICIT_TOKEN=1 to send none", endpoint)
	}
	return u, nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// percentName is a variable as Windows writes it.
var percentName = regexp.MustCompile(`%[^%]+%`)

// expand replaces $NAME, ${NAME}, a leading ~, and on Windows %NAME%, as Python does with these variables.
func expand(path string) string {
	path = os.ExpandEnv(path)
	if runtime.GOOS == "windows" {
		path = percentName.ReplaceAllStringFunc(path, func(name string) string {
			return cmp.Or(os.Getenv(strings.Trim(name, "%")), name)
		})
	}
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		if user, err := os.UserHomeDir(); err == nil {
			return user + rest
		}
	}
	return path
}

func isSet(variable string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(os.Getenv(variable)))
}
