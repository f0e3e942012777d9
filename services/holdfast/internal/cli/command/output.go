package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
)

// The values of -o, for commands that print documents of Holdfast and for those that print objects of
// the API.
const (
	documentFormats = "table, json, yaml or jsonpath=TEMPLATE"
	objectFormats   = "table, wide, name, json, yaml, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,..."
)

// Output is the value of -o: how a command prints what it found. The zero value prints the text or
// table that people read.
type Output struct {
	value   string
	wide    bool
	objects bool
	// print prints a value in any format but text and tables, for which it is nil.
	print func(w io.Writer, value any) error
}

// BindFlag adds -o to a command that prints documents.
func (o *Output) BindFlag(fs *pflag.FlagSet) {
	fs.VarP(o, "output", "o", "how to print: "+documentFormats)
}

// BindObjectFlag adds -o to a command that prints objects of the API.
func (o *Output) BindObjectFlag(fs *pflag.FlagSet) {
	o.objects = true
	fs.VarP(o, "output", "o", "how to print: "+objectFormats)
}

// Set parses the flag's value; "plaintext" is what Velero's CLI calls the text of describe.
func (o *Output) Set(value string) error {
	parsed := Output{value: value, objects: o.objects}
	format, template, _ := strings.Cut(value, "=")
	switch {
	case value == "" || value == "table" || value == "plaintext":
	case value == "json":
		parsed.print = printWith(&printers.JSONPrinter{})
	case value == "yaml":
		parsed.print = printWith(&printers.YAMLPrinter{})
	case format == "jsonpath":
		printer, err := printers.NewJSONPathPrinter(template)
		if err != nil {
			return err
		}
		parsed.print = printPath(printer.AllowMissingKeys(true))
	case value == "wide" && o.objects:
		parsed.wide = true
	case value == "name" && o.objects:
		parsed.print = printNames
	case format == "custom-columns" && o.objects:
		columns, err := parseColumns(template)
		if err != nil {
			return err
		}
		parsed.print = columns.print
	case o.objects:
		return errors.New("use " + objectFormats)
	default:
		return errors.New("use " + documentFormats)
	}
	*o = parsed
	return nil
}

// String returns the value.
func (o *Output) String() string { return o.value }

// Type names the kind of value in the help.
func (o *Output) Type() string { return "format" }

// IsText reports whether the command prints text or a table for people.
func (o *Output) IsText() bool { return o.print == nil }

// Print writes a value in the format that was chosen, which is not text.
func (o *Output) Print(w io.Writer, value any) error {
	if err := o.print(w, value); err != nil {
		return fmt.Errorf("print as %s: %w", o.value, err)
	}
	return nil
}

// PrintTable writes rows in aligned columns below a header. Rows have cells for the columns of wide
// too, which -o wide alone shows.
func (o *Output) PrintTable(w io.Writer, header, wide []string, rows [][]string) error {
	table := &metav1.Table{}
	for i, name := range append(header[:len(header):len(header)], wide...) {
		column := metav1.TableColumnDefinition{Name: name}
		if i >= len(header) {
			column.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, column)
	}
	for _, row := range rows {
		cells := make([]any, len(row))
		for i, cell := range row {
			cells[i] = cell
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: o.wide}).PrintObj(table, w)
}

// BuildRows returns the rows of a table, one for each item.
func BuildRows[T any](items []T, row func(T) []string) [][]string {
	rows := make([][]string, len(items))
	for i := range items {
		rows[i] = row(items[i])
	}
	return rows
}

// printWith prints the JSON of a value, which need not be an object of the API.
func printWith(printer printers.ResourcePrinter) func(io.Writer, any) error {
	return func(w io.Writer, value any) error {
		data, err := json.Marshal(value)
		if err != nil {
			return err
		}
		return printer.PrintObj(&runtime.Unknown{Raw: data}, w)
	}
}

func printNames(w io.Writer, value any) error {
	obj, ok := value.(runtime.Object)
	switch {
	case !ok:
		return fmt.Errorf("%T has no name", value)
	case meta.IsListType(obj):
		return meta.EachListItem(obj, func(item runtime.Object) error { return printNames(w, item) })
	}
	return (&printers.NamePrinter{}).PrintObj(obj, w)
}

// printPath writes what a template of jsonpath says.
func printPath(template *jsonpath.JSONPath) func(io.Writer, any) error {
	return func(w io.Writer, value any) error {
		decoded, err := decodeJSON(value)
		if err != nil {
			return err
		}
		return template.Execute(w, decoded)
	}
}

// decodeJSON returns what paths are looked up in: maps, lists, strings, numbers.
func decodeJSON(value any) (decoded any, err error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return decoded, utiljson.Unmarshal(data, &decoded)
}
