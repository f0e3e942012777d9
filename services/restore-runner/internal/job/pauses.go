package job

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// pauseRules returns the rules by which objects are created paused: those that the first holder had,
// else the ones of now. Only the order of stages has any, and only while records are durable:
// only the records have the former value of a mark. A key of the ConfigMap that holds no rule is an
// error of the restore.
func (p *restorePlanner) pauseRules(ctx context.Context, order restoreorder.Order) (plan.PauseRules, error) {
	if planned := p.in.records.head.Planned; planned != nil {
		return planned.Pauses, nil
	}
	if order != restoreorder.Stages || p.in.records.readOnly {
		return nil, nil
	}
	data, err := p.readRules(ctx, plan.PauseConfigMap)
	if err != nil {
		return nil, err
	}
	rules, errs := plan.ParsePauseRules(data)
	for _, err := range errs {
		p.in.recorder.Error(outcome.General, err.Error())
	}
	return rules, nil
}

// injectionRules returns the rules about what admission adds to Pods. A key of the ConfigMap that holds no
// rule is an error of the restore, once.
func (p *restorePlanner) injectionRules(ctx context.Context) (apply.InjectionRules, error) {
	data, err := p.readRules(ctx, apply.InjectionConfigMap)
	if err != nil {
		return nil, err
	}
	rules, errs := apply.ParseInjectionRules(data)
	for _, err := range errs {
		if p.in.records.head.Planned == nil {
			p.in.recorder.Error(outcome.General, err.Error())
		}
	}
	return rules, nil
}

// referenceRules returns what finds references in a tarball that has no manifest, and what is wrong with the
// rules of users.
func (p *restorePlanner) referenceRules(ctx context.Context) (set *reference.Set, errs []error, err error) {
	data, err := p.readRules(ctx, reference.ConfigMap)
	if err != nil {
		return nil, nil, err
	}
	rules, errs := reference.ParseRules(data)
	return reference.NewSet(rules, nil, nil), errs, nil
}

// readRules returns the data of a ConfigMap in the server namespace; none where it does not exist.
func (p *restorePlanner) readRules(ctx context.Context, name string) (map[string]string, error) {
	rules := &corev1.ConfigMap{}
	err := p.in.retryCall(ctx, "read ConfigMap "+name, func() error {
		err := p.in.cfg.Reader.Get(ctx, client.ObjectKey{Namespace: p.in.cfg.Namespace, Name: name}, rules)
		return client.IgnoreNotFound(err)
	})
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	return rules.Data, nil
}
