// Package redact keeps the credentials of URLs out of texts that people read. Parsers of URLs
// repeat what they could not parse, a password included.
package redact

import "regexp"

// Mark stands where credentials were.
const Mark = "xxxxx"

// userinfo is what stands between :// and the last @ before a space or a quote that is not escaped.
// A password that was not escaped may hold anything else, so the path after the host is taken for
// part of it should it hold an @.
var userinfo = regexp.MustCompile(`(://)(?:\\.|[^\s"\\])+@`)

// URLs replaces the user and password of every URL in text.
func URLs(text string) string { return userinfo.ReplaceAllString(text, "${1}"+Mark+"@") }

// Error returns err with URLs applied to its text; nil stays nil. It unwraps to err.
func Error(err error) error {
	if err == nil || URLs(err.Error()) == err.Error() {
		return err
	}
	return &redacted{err}
}

type redacted struct{ err error }

// Error is the text without credentials.
func (r *redacted) Error() string { return URLs(r.err.Error()) }

// Unwrap gives the error, whose own text has them.
func (r *redacted) Unwrap() error { return r.err }
