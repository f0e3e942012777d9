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

func (p *plugin) call(method string, within time.Duration) call {
	return call{who: who{p.registration.Kind, p.name}, method: method, within: within}
}

// query is a call that changes nothing.
func (p *plugin) query(method string) call {
	c := p.order(method)
	c.reads = true
	return c
}

// order is a call that is as short as a query.
func (p *plugin) order(method string) call { return p.call(method, p.worker.spec.limits.Query) }

func (p *plugin) execute(method string, object *action.Object) call {
	c := p.call(method, p.worker.spec.limits.Execute)
	c.object = object
	return c
}

// selecting is what AppliesTo of every kind answers.
type selecting interface {
	GetResourceSelector() *velero.ResourceSelector
}

// selector calls AppliesTo of an action: of Holdfast's own contract, which has more fields, if the
// process serves it, else of Velero's for the action's kind.
func (p *plugin) selector(ctx context.Context, veleros func(context.Context, *process) (selecting, error)) (s action.Selector, err error) {
	err = p.worker.do(ctx, p.query("AppliesTo"), func(ctx context.Context, at *process) error {
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
	answer, err := pluginv1.NewPluginServiceClient(at.conn).AppliesTo(ctx, &pluginv1.AppliesToRequest{Kind: ourKind(p.registration.Kind), Plugin: p.name})
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

// ourKind is the kind's value in Holdfast's own contract.
func ourKind(kind Kind) pluginv1.Kind {
	for value, k := range ours {
		if k == kind {
			return value
		}
	}
	return pluginv1.Kind_KIND_UNSPECIFIED
}
