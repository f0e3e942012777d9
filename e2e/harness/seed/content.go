package seed

import (
	"encoding/base64"
	"hash/fnv"
	"math/rand/v2"
	"strings"
)

// bytesFor returns n bytes that depend only on the name: random enough not to compress, the same on
// every run.
func bytesFor(name string, n int) []byte {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))
	var key [32]byte
	copy(key[:], name)
	hash.Sum(key[:0:24])
	data := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(data) // documented never to fail
	return data
}

// textFor returns n printable bytes that depend only on the name.
func textFor(name string, n int) string {
	return base64.StdEncoding.EncodeToString(bytesFor(name, n))[:n]
}

// awkwardText holds what JSON, HTML-safe encoders and shells like to trip over.
const awkwardText = "line one\nline two\ttab \"quoted\" 'single' back\\slash <b>&amp;</b> $HOME `x` {{ .Values }} %s %00 " +
	"\u2028\u2029 é ü ß 漢字 🚀 \x01\x1f\x7f"

// longDNSName is a name of 253 characters, the most a DNS subdomain may have, made of every
// character one may hold.
func longDNSName() string {
	const label = "abcdefghijklmnopqrstuvwxyz-0123456789"
	return (strings.Repeat(label+".", 7) + label)[:253]
}

// longLabelValue is a label value of 63 characters made of kinds of character one may hold.
func longLabelValue() string {
	return "A" + strings.Repeat("aZ09-_.", 8) + "9-_.zZ"
}

// pathSegmentName holds every printable ASCII character that the names of RBAC objects may have:
// all but the slash and the percent sign.
func pathSegmentName() string {
	var name strings.Builder
	name.WriteString("every")
	for c := byte(' '); c <= '~'; c++ {
		if c != '/' && c != '%' {
			name.WriteByte(c)
		}
	}
	return name.String() + "é漢🚀"
}
