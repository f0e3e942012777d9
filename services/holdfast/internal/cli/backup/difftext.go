package backup

import (
	"fmt"
	"io"

	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

var changeNames = map[manifestv1.ItemDifference_Change]string{
	manifestv1.ItemDifference_CHANGE_ADDED: "added", manifestv1.ItemDifference_CHANGE_REMOVED: "removed", manifestv1.ItemDifference_CHANGE_CHANGED: "changed",
}

// The colours of terminals.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

// diffText writes differences for people.
type diffText struct {
	w        io.Writer
	coloured bool
	err      error
}

func (t *diffText) writeLine(colour, line string) {
	line = command.FormatLine(line)
	if t.coloured && colour != "" {
		line = colour + line + plain
	}
	if _, err := fmt.Fprintln(t.w, line); t.err == nil {
		t.err = err
	}
}

func (t *diffText) writeDifferences(differences []*manifestv1.ItemDifference) {
	for _, d := range differences {
		switch d.GetChange() {
		case manifestv1.ItemDifference_CHANGE_ADDED:
			t.writeLine(green, "+ "+objectTitle(d))
		case manifestv1.ItemDifference_CHANGE_REMOVED:
			t.writeLine(red, "- "+objectTitle(d))
		default:
			t.writeLine(yellow, "~ "+objectTitle(d))
		}
		for _, f := range d.GetFields() {
			t.writeField(f)
		}
		if d.GetMoreFields() {
			t.writeLine("", "    … and more fields")
		}
	}
}

// objectTitle is "Deployment.apps shop/web", with the versions where they differ.
func objectTitle(d *manifestv1.ItemDifference) string {
	title := d.GetKind()
	if d.GetGroup() != "" {
		title += "." + d.GetGroup()
	}
	title += " "
	if d.GetNamespace() != "" {
		title += d.GetNamespace() + "/"
	}
	title += d.GetName()
	if from, to := d.GetFromVersion(), d.GetToVersion(); from != "" && to != "" && from != to {
		title += fmt.Sprintf(" (%s -> %s)", from, to)
	}
	return title
}

func (t *diffText) writeField(f *manifestv1.FieldDifference) {
	field := "    " + f.GetPath() + ": "
	switch {
	case f.GetMasked():
		t.writeLine("", field+"changed")
	case f.From == nil:
		t.writeLine(green, field+"+ "+f.GetTo())
	case f.To == nil:
		t.writeLine(red, field+"- "+f.GetFrom())
	default:
		t.writeLine("", field+f.GetFrom()+" -> "+f.GetTo())
	}
}
