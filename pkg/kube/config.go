package kube

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// Config returns the configuration of a connection to the API server. An empty path means
// KUBECONFIG, then ~/.kube/config, then the Pod's service account. Requests are not limited on the
// client's side (QPS -1): the server's own priority and fairness decides, and what sends many
// requests adapts to it. What an API server forbids within 30 s after it was unreachable is asked again: a server that
// starts answers before it has read the roles.
func Config(kubeconfig string) (*rest.Config, error) {
	return ConfigForContext(kubeconfig, "")
}

// ConfigForContext is Config with a context of the kubeconfig file other than its current one;
// empty is the current one.
func ConfigForContext(kubeconfig, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig: %w", telemetry.RedactError(err)) // of a proxy's URL, for example
	}
	cfg.QPS = -1
	cfg.UserAgent = "holdfast/" + telemetry.Version()
	cfg.Wrap((&apiServerOutage{clock: clock.RealClock{}}).wrapTransport)
	return cfg, nil
}
