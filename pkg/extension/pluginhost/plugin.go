package pluginhost

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// plugin is one registered plugin and the processes that serve it.
type plugin struct {
	name         string
	registration Registration
	worker       *worker
}

// Name returns the registered name.
func (p *plugin) Name() string { return p.name }

func (p *plugin) newCall(method string, within time.Duration) pluginCall {
	return pluginCall{who: who{p.registration.Kind, p.name}, method: method, within: within}
}

// newQuery is a call that changes nothing.
func (p *plugin) newQuery(method string) pluginCall {
	c := p.newShortCall(method)
	c.reads = true
	return c
}

// newShortCall is a call that is as short as a query.
func (p *plugin) newShortCall(method string) pluginCall {
	return p.newCall(method, p.worker.spec.limits.Query)
}

func (p *plugin) newExecuteCall(method string, object *action.Object) pluginCall {
	c := p.newCall(method, p.worker.spec.limits.Execute)
	c.object = object
	return c
}

// selectorAnswer is what AppliesTo of every kind answers.
type selectorAnswer interface {
	GetResourceSelector() *velero.ResourceSelector
}

// readSelector calls AppliesTo of an action: of Holdfast's own contract, which has more fields, if the
// process serves it, else of Velero's for the action's kind.
func (p *plugin) readSelector(ctx context.Context, veleros func(context.Context, *process) (selectorAnswer, error)) (s action.Selector, err error) {
	err = p.worker.callProcess(ctx, p.newQuery("AppliesTo"), func(ctx context.Context, at *process) error {
		if p.registration.described {
			s, err = p.describedSelector(ctx, at)
			return err
		}
		answer, err := veleros(ctx, at)
		if err != nil {
			return err
		}
		s = selectorOf(answer.GetResourceSelector())
		return nil
	})
	return s, err
}

func (p *plugin) describedSelector(ctx context.Context, at *process) (action.Selector, error) {
	answer, err := pluginv1.NewPluginServiceClient(at.conn).AppliesTo(ctx, &pluginv1.AppliesToRequest{Kind: contractKind(p.registration.Kind), Plugin: p.name})
	if err != nil {
		return action.Selector{}, err
	}
	s := answer.GetSelector()
	return action.Selector{
		IncludedNamespaces: s.GetIncludedNamespaces(),
		ExcludedNamespaces: s.GetExcludedNamespaces(),
		IncludedResources:  s.GetIncludedResources(),
		ExcludedResources:  s.GetExcludedResources(),
		Labels:             s.GetLabelSelector(),
		Expression:         s.GetExpression(),
		Touches:            p.registration.Touches,
	}, nil
}

// contractKind returns the kind's value in Holdfast's own contract.
func contractKind(kind Kind) pluginv1.Kind {
	for value, k := range contractKinds {
		if k == kind {
			return value
		}
	}
	return pluginv1.Kind_KIND_UNSPECIFIED
}
