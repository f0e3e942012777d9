package command

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// FormatTime returns a time for people, "<n/a>" when there is none.
func FormatTime(t *metav1.Time) string {
	if t == nil || t.IsZero() {
		return "<n/a>"
	}
	return t.Time.Local().Format("2006-01-02 15:04:05 -0700 MST")
}

// FormatUntil returns how long it is until a time, or how long ago it was.
func FormatUntil(t, now time.Time) string {
	if t.IsZero() {
		return "n/a"
	}
	if left := t.Sub(now); left > 0 {
		return duration.ShortHumanDuration(left)
	}
	return duration.ShortHumanDuration(now.Sub(t)) + " ago"
}

// FormatSelector returns a label selector for people, "<none>" when it selects all.
func FormatSelector(s *metav1.LabelSelector, or []*metav1.LabelSelector) string {
	if s != nil {
		return metav1.FormatLabelSelector(s)
	}
	if len(or) == 0 {
		return "<none>"
	}
	each := make([]string, 0, len(or))
	for _, one := range or {
		each = append(each, metav1.FormatLabelSelector(one))
	}
	return strings.Join(each, " or ")
}

// FormatLine returns a text without control characters, which could steer the terminal: names of fields, and of what
// an object refers to, may have any.
func FormatLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// FormatLines is FormatLine of a text that may have lines and tabs: errors quote what services found in a bucket.
func FormatLines(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// barWidth is the width of a progress bar in characters.
const barWidth = 20

// FormatBar is how far something is, as "[#####...............] 25%"; empty while total is not known.
func FormatBar(completed, total int64) string {
	if total <= 0 {
		return ""
	}
	part := min(max(float64(completed)/float64(total), 0), 1)
	full := int(part * barWidth)
	return fmt.Sprintf("[%s%s] %d%%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), int(part*100)) //nolint:mnd // per cent
}

// FormatAmount is "3 of 10 Bytes", or "3 Bytes" while total is not known; empty where nothing is counted.
func FormatAmount(completed, total int64, units string) string {
	switch {
	case completed == 0 && total == 0:
		return ""
	case total == 0:
		return strings.TrimSpace(fmt.Sprintf("%d %s", completed, units))
	}
	return strings.TrimSpace(fmt.Sprintf("%d of %d %s", completed, total, units))
}
