package debug

import (
	"regexp"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// scrubMark stands where a value was.
const scrubMark = telemetry.RedactMark

// secretWord is what a name has whose value is a secret.
const secretWord = `(?:passw(?:or)?d|passphrase|pwd|secret|token|credential|api[_.-]?key|access[_.-]?key|private[_.-]?key|account[_.-]?key|signature|authorization|connection[_.-]?string)`

var (
	// query is that of a URL: signed links have their signature in it.
	query = regexp.MustCompile(`(\w+://[^\s"'?<>]+\?)[^\s"'<>]+`)
	// bearer is a scheme of HTTP authentication with its credentials.
	bearer = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}`)
	// assigned is a name of a secret and what stands before its value: name=, "name": and the like,
	// quotes escaped or not. So is passed, as the flag of a command line whose value is the next word.
	assigned = regexp.MustCompile(`(?i)(?:[\w.-]*` + secretWord + `[\w.-]*|[\w.-]*(?:pass|sig))\\*["']?\s*(?:=>|:=|[=:])\s*`)
	passed   = regexp.MustCompile(`(?i)(?:^|[\s"'\[,=])--?(?:[\w.-]*` + secretWord + `[\w.-]*|[\w.-]*pass)\\*["']?[\s,]+`)
	// header is one of HTTP authentication to the end of its line: a scheme may have any parameters.
	header = regexp.MustCompile(`(?i)([\w.-]*authorization\\*["']?\s*[=:][ \t]*)[^\s][^\n]*`)
	// jwt is a JSON Web Token, as a service account's.
	jwt = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*`)
	// seed is the private part of an NKEY of NATS.
	seed = regexp.MustCompile(`\bS[UAONCX][A-Z2-7]{56}\b`)
	// keyID is an access key id of AWS.
	keyID = regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b`)
	// pem is a private key, to its end or to that of the text.
	pem = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`)
	// pemEnd is the end of a private key.
	pemEnd = regexp.MustCompile(`-----END [A-Z0-9 ]*PRIVATE KEY-----`)
)

// keyBytes is more than a private key takes in a log: one of RSA with 16384 bits is 13 KiB in PEM,
// before what a log puts before its lines.
const keyBytes = 32 << 10

// scrubKeyTails marks the private keys whose beginning a text lacks: of an end without one, everything
// before it from the line on in which such a key may begin.
func scrubKeyTails(text string) string {
	var out strings.Builder
	for {
		at := pemEnd.FindStringIndex(text)
		if at == nil {
			out.WriteString(text)
			return out.String()
		}
		if before := at[0] - keyBytes; before > 0 {
			out.WriteString(text[:strings.LastIndexByte(text[:before], '\n')+1])
		}
		out.WriteString(scrubMark)
		text = text[at[1]:]
	}
}

// scrubText returns a text without what looks like a secret: users and queries of URLs, what is assigned
// to a name such as password, tokens and private keys.
func scrubText(text string) string {
	text = scrubKeyTails(pem.ReplaceAllString(text, scrubMark))
	text = telemetry.RedactURLs(text)
	text = query.ReplaceAllString(text, "${1}"+scrubMark)
	text = bearer.ReplaceAllString(text, "${1} "+scrubMark)
	text = header.ReplaceAllString(text, "${1}"+scrubMark)
	text = scrubValues(text, passed)
	text = scrubValues(text, assigned)
	text = jwt.ReplaceAllString(text, scrubMark)
	text = seed.ReplaceAllString(text, scrubMark)
	return keyID.ReplaceAllString(text, scrubMark)
}
