// Package artifact serves files of backup locations over HTTP for object stores that cannot sign
// URLs themselves.
//
// A URL is valid for one object of one location until it expires:
// /artifacts/<location>/<key>?expires=<unix>&signature=<hex>. The signature is an HMAC-SHA256 under
// a key that all replicas share, so that any of them serves what any other signed.
package artifact

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// PathPrefix begins the path of every artifact.
const PathPrefix = "/artifacts/"

// MaxAge is how long a URL may be valid: neither is one made for longer, nor is one taken whose end
// is farther away, with any signature.
const MaxAge = time.Hour

// KeyBytes is the length of a signing key.
const KeyBytes = 32

// Reasons to refuse a URL.
var (
	// ErrSignature means that the URL was not signed with this key, or changed since.
	ErrSignature = errors.New("invalid signature")
	// ErrExpired means that the URL was valid once.
	ErrExpired = errors.New("the link has expired")
)

// Signer makes and checks URLs. It is safe for concurrent use.
type Signer struct {
	// Key is the shared secret, KeyBytes long.
	Key []byte
	// Base is the URL under which clients reach the endpoint, for example "http://127.0.0.1:8445".
	Base string
	// Clock decides about expiry.
	Clock clock.PassiveClock
}

// URL returns a link to an object of a location that is valid for ttl, at most MaxAge. Neither needs to exist.
func (s *Signer) URL(location, key string, ttl time.Duration) (string, error) {
	if len(s.Key) < KeyBytes {
		return "", fmt.Errorf("artifact signing key: %d bytes, at least %d are needed", len(s.Key), KeyBytes)
	}
	if ttl > MaxAge {
		return "", fmt.Errorf("artifact link for %s: at most %s", ttl, MaxAge)
	}
	base, err := url.Parse(s.Base)
	if err != nil || base.Host == "" {
		return "", fmt.Errorf("artifact base URL %q is not a URL", s.Base)
	}
	expires := s.Clock.Now().Add(ttl).Unix()
	u := base.JoinPath(PathPrefix, url.PathEscape(location), escapeKey(key))
	u.RawQuery = url.Values{
		"expires":   {strconv.FormatInt(expires, 10)},
		"signature": {hex.EncodeToString(s.signFields(location, key, expires))},
	}.Encode()
	return u.String(), nil
}

// Verify checks the path and query of a request and returns what it asks for. Errors wrap
// ErrSignature or ErrExpired.
func (s *Signer) Verify(u *url.URL) (location, key string, err error) {
	rest, ok := strings.CutPrefix(u.Path, PathPrefix)
	location, key, found := strings.Cut(rest, "/")
	query := u.Query()
	expires, perr := strconv.ParseInt(query.Get("expires"), 10, 64)
	signature, herr := hex.DecodeString(query.Get("signature"))
	if !ok || !found || perr != nil || herr != nil || len(s.Key) < KeyBytes {
		return "", "", ErrSignature
	}
	if !hmac.Equal(signature, s.signFields(location, key, expires)) {
		return "", "", ErrSignature
	}
	switch now := s.Clock.Now(); {
	case now.Unix() >= expires:
		return "", "", ErrExpired
	case now.Add(MaxAge+clockSkew).Unix() < expires:
		return "", "", ErrSignature
	}
	return location, key, nil
}

// clockSkew is how much later the clock of the replica may be that made a URL.
const clockSkew = time.Minute

// signFields authenticates all fields; the separator cannot be part of a location's name, nor of a
// number.
func (s *Signer) signFields(location, key string, expires int64) []byte {
	mac := hmac.New(sha256.New, s.Key)
	_, _ = fmt.Fprintf(mac, "holdfast artifact 1\n%d\n%s\n%s", expires, location, key)
	return mac.Sum(nil)
}

func escapeKey(key string) string {
	segments := strings.Split(key, "/")
	for i := range segments {
		segments[i] = url.PathEscape(segments[i])
	}
	return strings.Join(segments, "/")
}
