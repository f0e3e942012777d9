package telemetry

import "regexp"

// RedactMark stands where credentials were.
const RedactMark = "xxxxx"

// userinfo is what stands between :// and the last @ before a space or a quote that is not escaped.
// A password that was not escaped may hold anything else, so the path after the host is taken for
// part of it should it hold an @.
var userinfo = regexp.MustCompile(`(://)(?:\\.|[^\s"\\])+@`)

// RedactURLs replaces the user and password of every URL in text. Parsers of URLs repeat what they could
// not parse, a password included.
func RedactURLs(text string) string { return userinfo.ReplaceAllString(text, "${1}"+RedactMark+"@") }

// RedactError returns err with URLs applied to its text; nil stays nil. It unwraps to err.
func RedactError(err error) error {
	if err == nil || RedactURLs(err.Error()) == err.Error() {
		return err
	}
	return &redacted{err}
}

type redacted struct{ err error }

// Error is the text without credentials.
func (r *redacted) Error() string { return RedactURLs(r.err.Error()) }

// Unwrap gives the error, whose own text has them.
func (r *redacted) Unwrap() error { return r.err }
