package plugin

import (
	"context"
	"fmt"
	"sync"

	"cel.dev/cel-go/cel"
)

// costLimit ends an expression within about a second. Kubernetes allows the same for one in a
// policy.
const costLimit = 1_000_000

// environment is made once: it costs milliseconds.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable("item", cel.DynType))
})

// Expression is a compiled expression of a selector, in the Common Expression Language. The server
// evaluates it to spare a call, and a plugin's process for servers that do not know expressions. Safe for concurrent use.
type Expression struct {
	program cel.Program
}

// CompileExpression compiles an expression over the variable item that yields a bool.
func CompileExpression(text string) (*Expression, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("expression: %w", err)
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("expression %q: %w", text, err)
	}
	if kind := ast.OutputType(); kind != cel.BoolType && kind != cel.DynType {
		return nil, fmt.Errorf("expression %q: yields %s, want bool", text, kind)
	}
	program, err := env.Program(ast, cel.CostLimit(costLimit), cel.InterruptCheckFrequency(1000))
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", text, err)
	}
	return &Expression{program: program}, nil
}

// Matches evaluates the expression for an object, decoded from JSON. It fails if the expression
// does, for example at a field that the object lacks, or yields no bool.
func (e *Expression) Matches(ctx context.Context, item map[string]any) (bool, error) {
	value, _, err := e.program.ContextEval(ctx, map[string]any{"item": item})
	if err != nil {
		return false, fmt.Errorf("expression: %w", err)
	}
	matches, ok := value.Value().(bool)
	if !ok {
		return false, fmt.Errorf("expression: yields %s, want bool", value.Type().TypeName())
	}
	return matches, nil
}
