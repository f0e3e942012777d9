package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// Format is the value of -o.
type Format string

// The formats. Text is what a command prints for people.
const (
	Text Format = ""
	JSON Format = "json"
	YAML Format = "yaml"
)

// BindFlag adds -o to fs.
func (f *Format) BindFlag(fs *pflag.FlagSet) {
	fs.VarP(f, "output", "o", "print json or yaml instead of text")
}

// Set parses the flag's value; "table" is what Velero's CLI calls its text.
func (f *Format) Set(value string) error {
	switch Format(value) {
	case JSON, YAML:
		*f = Format(value)
	case Text, "table", "plaintext":
		*f = Text
	default:
		return fmt.Errorf("%q is not json, yaml or table", value)
	}
	return nil
}

// String returns the format.
func (f *Format) String() string { return string(*f) }

// Type names the kind of value in the help.
func (f *Format) Type() string { return "format" }

// Print writes a value as JSON or YAML.
func (f Format) Print(w io.Writer, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err == nil && f == YAML {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", f, err)
	}
	_, err = fmt.Fprintln(w, strings.TrimSuffix(string(data), "\n"))
	return err
}

// Table writes rows in aligned columns below a header. Cells hold no tabs.
func Table(w io.Writer, header []string, rows [][]string) error {
	tab := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		if _, err := fmt.Fprintln(tab, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return tab.Flush()
}

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
