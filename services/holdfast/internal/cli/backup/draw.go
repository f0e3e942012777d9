package backup

import (
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// treeWriter draws trees with box characters.
type treeWriter struct {
	w     io.Writer
	graph *treeGraph
	// drawn are the objects drawn with what belongs to them, path those above the present line.
	drawn, path map[*treeNode]bool
}

// writeRoots draws trees, below headings of their namespaces where there may be several.
func (t *treeWriter) writeRoots(roots []*treeNode, headings bool) {
	for i, n := range roots {
		if headings && (i == 0 || n.namespace != roots[i-1].namespace) {
			if i > 0 {
				t.writeLine("")
			}
			t.writeLine(headingOf(n.namespace))
		}
		t.writeLine(n.formatKey(n.namespace))
		t.writeBelow(n, "")
	}
}

func headingOf(namespace string) string {
	if namespace == "" {
		return "Without namespace:"
	}
	return "Namespace " + namespace + ":"
}

func (t *treeWriter) writeLine(line string) { _, _ = fmt.Fprintln(t.w, line) } // the flush has the error

// writeBelow draws what belongs to a node.
func (t *treeWriter) writeBelow(n *treeNode, indent string) {
	t.drawn[n], t.path[n] = true, true
	defer delete(t.path, n)
	links := make([]treeLink, 0, len(n.owned)+len(n.named))
	for _, owned := range n.owned {
		links = append(links, treeLink{to: owned})
	}
	links = append(links, n.named...)
	for i, l := range links {
		branch, below := "├─ ", "│  "
		if i == len(links)-1 {
			branch, below = "└─ ", "   "
		}
		text := l.to.formatKey(n.namespace)
		if l.relation != "" {
			text = l.relation + " → " + text
		}
		mark := t.explainOmission(l.to)
		t.writeLine(indent + branch + text + mark)
		if !t.drawn[l.to] {
			t.writeBelow(l.to, indent+below)
		}
	}
}

// explainOmission says why a node is drawn without what belongs to it.
func (t *treeWriter) explainOmission(n *treeNode) string {
	switch {
	case t.graph.isMissing(n):
		return " (not in the backup)"
	case t.path[n]:
		return " (cycle)"
	case t.drawn[n] && len(n.owned)+len(n.named) > 0:
		return " (see above)"
	}
	return ""
}

// formatKey returns KIND/NAME, with the namespace where it is another one than the given.
func (k *treeKey) formatKey(namespace string) string {
	text := k.kind + "/" + k.name
	if k.namespace != "" && k.namespace != namespace {
		text += " in " + k.namespace
	}
	return command.FormatLine(text)
}

// writeDot writes the graph in the language of Graphviz.
func (g *treeGraph) writeDot(w io.Writer, name string, roots []*treeNode) {
	_, _ = fmt.Fprintf(w, "digraph %s {\n  rankdir=LR;\n  node [shape=box];\n", quoteDot(name))
	g.eachEdge(roots, func(id int, n *treeNode) {
		style := ""
		if g.isMissing(n) {
			style = ", style=dashed"
		}
		_, _ = fmt.Fprintf(w, "  n%d [label=%s%s];\n", id, quoteDot(n.formatKey("")), style)
	}, func(from, to int, relation string) {
		if relation == "" {
			_, _ = fmt.Fprintf(w, "  n%d -> n%d [label=owns, style=bold];\n", from, to)
		} else {
			_, _ = fmt.Fprintf(w, "  n%d -> n%d [label=%s];\n", from, to, quoteDot(relation))
		}
	})
	_, _ = fmt.Fprintln(w, "}")
}

func quoteDot(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// writeMermaid writes the graph in the language of Mermaid.
func (g *treeGraph) writeMermaid(w io.Writer, roots []*treeNode) {
	quote := strings.NewReplacer(`"`, "#quot;", "#", "#35;")
	_, _ = fmt.Fprintln(w, "graph LR")
	g.eachEdge(roots, func(id int, n *treeNode) {
		_, _ = fmt.Fprintf(w, "  n%d[\"%s\"]\n", id, quote.Replace(n.formatKey("")))
	}, func(from, to int, relation string) {
		if relation == "" {
			_, _ = fmt.Fprintf(w, "  n%d ==>|owns| n%d\n", from, to)
		} else {
			_, _ = fmt.Fprintf(w, "  n%d -->|%s| n%d\n", from, quote.Replace(relation), to)
		}
	})
}

// eachEdge numbers the nodes that can be reached from the roots, and calls edge for all that they own (without a
// relation) and name.
func (g *treeGraph) eachEdge(roots []*treeNode, node func(id int, n *treeNode), edge func(from, to int, relation string)) {
	ids, reached, all := map[*treeNode]int{}, map[*treeNode]bool{}, []*treeNode{}
	for _, root := range roots {
		root.eachReached(reached, func(n *treeNode) {
			ids[n] = len(ids)
			all = append(all, n)
			node(ids[n], n)
		})
	}
	for _, n := range all {
		for _, owned := range n.owned {
			edge(ids[n], ids[owned], "")
		}
		for _, l := range n.named {
			edge(ids[n], ids[l.to], l.relation)
		}
	}
}
