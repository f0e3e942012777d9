package command

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// customColumns are the columns of -o custom-columns, which cli-runtime has no printer for.
type customColumns struct {
	headers []string
	paths   []*jsonpath.JSONPath
}

// parseColumns reads HEADER:PATH,... as kubectl does: braces and the first dot of a path may be left
// out.
func parseColumns(spec string) (*customColumns, error) {
	columns := &customColumns{}
	for part := range strings.SplitSeq(spec, ",") {
		header, path, _ := strings.Cut(part, ":")
		if header == "" || path == "" {
			return nil, fmt.Errorf("%q is not of the form HEADER:PATH", part)
		}
		path = strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(path, "{"), "}"), ".")
		parsed := jsonpath.New(header).AllowMissingKeys(true)
		if err := parsed.Parse("{." + path + "}"); err != nil {
			return nil, err
		}
		columns.headers, columns.paths = append(columns.headers, header), append(columns.paths, parsed)
	}
	return columns, nil
}

// print writes a row for an object, or for each of a list.
func (c *customColumns) print(w io.Writer, value any) error {
	decoded, err := decodeJSON(value)
	if err != nil {
		return err
	}
	objects := []any{decoded}
	if list, ok := decoded.(map[string]any)["items"].([]any); ok {
		objects = list
	}
	rows := make([][]string, len(objects))
	for i, object := range objects {
		for _, path := range c.paths {
			cell, err := formatCell(path, object)
			if err != nil {
				return err
			}
			rows[i] = append(rows[i], cell)
		}
	}
	return (&Output{}).PrintTable(w, c.headers, nil, rows)
}

// formatCell returns the values at a path, joined by commas; "<none>" where there are none.
func formatCell(path *jsonpath.JSONPath, object any) (string, error) {
	found, err := path.FindResults(object)
	if err != nil {
		return "", err
	}
	var values []string
	for _, results := range found {
		for _, value := range results {
			values = append(values, fmt.Sprint(value.Interface()))
		}
	}
	if len(values) == 0 {
		return "<none>", nil
	}
	return strings.Join(values, ","), nil
}
