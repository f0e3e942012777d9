package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type object = map[string]any

func TestBuiltinRules(t *testing.T) {
	rules, errs := ParsePauseRules(nil)
	require.Empty(t, errs)
	for i := range rules {
		require.NoError(t, rules[i].checkRule(), rules[i].Kind)
		require.True(t, strings.HasPrefix(rules[i].Source, "https://"), rules[i].Kind)
	}
	for kind, mark := range map[schema.GroupKind]string{
		{Group: "cluster.x-k8s.io", Kind: "Cluster"}: "spec.paused", {Group: "postgresql.cnpg.io", Kind: "Cluster"}: "cnpg.io/reconciliationLoop",
		{Group: "kafka.strimzi.io", Kind: "KafkaTopic"}: "strimzi.io/pause-reconciliation", {Group: "kibana.k8s.elastic.co", Kind: "Kibana"}: "eck.k8s.elastic.co/managed",
		{Group: "s3.aws.upbound.io", Kind: "Bucket"}: "crossplane.io/paused", {Group: "rabbitmq.com", Kind: "RabbitmqCluster"}: "rabbitmq.com/pauseReconciliation",
		{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}: "spec.suspend",
	} {
		r := rules.For(kind)
		require.NotNil(t, r, kind)
		require.Equal(t, mark, r.Field+r.Annotation+r.Label)
	}
	for _, kind := range []schema.GroupKind{{Group: "cluster.x-k8s.io", Kind: "Machine"}, {Kind: "Secret"}, {Group: "example.com", Kind: "Cluster"}} {
		require.Nil(t, rules.For(kind), kind)
	}
}

// The stored state of the mark comes back, whatever it was: also that there was none.
func TestPauseGivesTheWayBack(t *testing.T) {
	field := &PauseRule{Field: "spec.paused", Value: true}
	body := object{"spec": object{"paused": false, "size": 1.0}}
	back, paused := field.Pause(body)
	require.True(t, paused)
	require.Equal(t, object{"spec": object{"paused": true, "size": 1.0}}, body)
	require.Equal(t, object{"spec": object{"paused": false}}, back)

	_, paused = field.Pause(body)
	require.False(t, paused, "it was paused in the backup and stays so")

	_, paused = field.Pause(object{"spec": "odd"})
	require.False(t, paused)

	label := &PauseRule{Label: "a/b", Value: "true"}
	body = object{"metadata": object{"name": "x"}}
	back, paused = label.Pause(body)
	require.True(t, paused)
	require.Equal(t, object{"metadata": object{"name": "x", "labels": object{"a/b": "true"}}}, body)
	require.Equal(t, object{"metadata": object{"labels": object{"a/b": nil}}}, back)
}

func TestConfigMap(t *testing.T) {
	rules, errs := ParsePauseRules(map[string]string{
		"widgets": "group: example.com\nkind: Widget\nannotation: example.com/paused\nvalue: \"yes\"\n",
		"no-flux": "group: helm.toolkit.fluxcd.io\nkind: HelmRelease\n",
	})
	require.Empty(t, errs)
	require.Equal(t, "example.com/paused", rules.For(schema.GroupKind{Group: "example.com", Kind: "Widget"}).Annotation)
	require.Nil(t, rules.For(schema.GroupKind{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}), "a rule without a mark takes a built-in one away")
	for name, text := range map[string]string{
		"not YAML": "{", "unknown key": "group: a\nkind: b\nfeild: spec.x\nvalue: true", "no kind": "group: a\nfield: spec.x\nvalue: true", "two marks": "group: a\nkind: b\nfield: spec.x\nlabel: y\nvalue: true",
		"no value": "group: a\nkind: b\nfield: spec.x", "a number as annotation": "group: a\nkind: b\nannotation: x\nvalue: 1", "a list as value": "group: a\nkind: b\nfield: spec.x\nvalue: [1]", "every group": "group: \"*\"\nkind: b\nfield: spec.x\nvalue: true", "not below spec": "group: a\nkind: b\nfield: metadata.name\nvalue: x",
	} {
		_, errs := ParsePauseRules(map[string]string{"bad": text})
		require.Len(t, errs, 1, name)
		require.ErrorContains(t, errs[0], "data[bad]", name)
	}
}
