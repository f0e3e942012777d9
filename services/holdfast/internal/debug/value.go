package debug

import (
	"regexp"
	"strings"
)

// scrubValues marks the value after each match of name.
func scrubValues(text string, name *regexp.Regexp) string {
	var out strings.Builder
	for {
		at := name.FindStringIndex(text)
		if at == nil {
			out.WriteString(text)
			return out.String()
		}
		end := at[1] + valueEnd(text[at[1]:])
		out.WriteString(text[:at[1]])
		if end > at[1] {
			out.WriteString(scrubMark)
		}
		text = text[end:]
	}
}

// valueEnd is the length of the value that text begins with. A value in quotes ends with its quote,
// or with its line if there is none. Any other value ends at white space, since a password may hold
// every other character; a list in brackets does not end before its bracket.
func valueEnd(text string) int {
	escapes := 0
	for escapes < len(text) && text[escapes] == '\\' {
		escapes++
	}
	if escapes == len(text) {
		return escapes
	}
	first := text[escapes]
	if first == '"' || first == '\'' {
		return quotedEnd(text, escapes)
	}
	from := 0
	if first == '[' {
		line := lineEnd(text)
		if from = strings.IndexByte(text[:line], ']'); from < 0 {
			return line
		}
	}
	if i := strings.IndexAny(text[from:], " \t\r\n"); i >= 0 {
		return from + i
	}
	return len(text)
}

// quotedEnd is the length of the value whose quote follows that many backslashes. Quotes are nested
// as JSON in JSON nests them: the closing quote has as many backslashes as the opening one after
// those that stand in pairs at its depth, and one with fewer closes what the value is part of.
func quotedEnd(text string, escapes int) int {
	quote, limit := text[escapes], len(text)
	if escapes > 0 {
		limit = lineEnd(text) // an escaped quote is part of another, whose line feeds are escaped
	}
	run := 0
	for i := escapes + 1; i < limit; i++ {
		switch {
		case text[i] == '\\':
			run++
			continue
		case text[i] == quote && (run < escapes || run%(2*(escapes+1)) == escapes):
			return i + 1
		}
		run = 0
	}
	return lineEnd(text)
}

func lineEnd(text string) int {
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		return i
	}
	return len(text)
}
