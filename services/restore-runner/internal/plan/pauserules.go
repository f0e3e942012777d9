package plan

// builtinPauses are the marks of operators that let their resources be paused. Source is the
// documentation of the mark.
var builtinPauses = []PauseRule{
	{Group: "cluster.x-k8s.io", Kind: "Cluster", Field: "spec.paused", Value: true,
		Source: "https://cluster-api.sigs.k8s.io/developer/core/controllers/cluster: holds up all objects of the cluster, where the annotation holds up its own object only"},
	{Group: "postgresql.cnpg.io", Kind: "Cluster", Annotation: "cnpg.io/reconciliationLoop", Value: "disabled",
		Source: "https://cloudnative-pg.io/documentation/current/failure_modes/#disabling-reconciliation"},
	{Group: "kafka.strimzi.io", Kind: "*", Annotation: "strimzi.io/pause-reconciliation", Value: "true",
		Source: "https://strimzi.io/docs/operators/latest/deploying#proc-pausing-reconciliation-str"},
	{Group: "*.k8s.elastic.co", Kind: "*", Annotation: "eck.k8s.elastic.co/managed", Value: "false",
		Source: "https://www.elastic.co/docs/troubleshoot/deployments/cloud-on-k8s/troubleshooting-methods"},
	{Group: "*.crossplane.io", Kind: "*", Annotation: "crossplane.io/paused", Value: "true",
		Source: "https://docs.crossplane.io/latest/managed-resources/managed-resources/"},
	{Group: "*.upbound.io", Kind: "*", Annotation: "crossplane.io/paused", Value: "true",
		Source: "https://docs.crossplane.io/latest/managed-resources/managed-resources/"},
	{Group: "rabbitmq.com", Kind: "RabbitmqCluster", Label: "rabbitmq.com/pauseReconciliation", Value: "true",
		Source: "https://www.rabbitmq.com/kubernetes/operator/using-operator#pause"},
	{Group: "argoproj.io", Kind: "Application", Annotation: "argocd.argoproj.io/skip-reconcile", Value: "true",
		Source: "https://argo-cd.readthedocs.io/en/stable/user-guide/skip_reconcile/"},
	{Group: "enterprise.mariadb.com", Kind: "MariaDB", Field: "spec.suspend", Value: true,
		Source: "https://mariadb.com/docs/tools/mariadb-enterprise-operator/suspend-reconciliation"},
	{Group: "enterprise.mariadb.com", Kind: "MaxScale", Field: "spec.suspend", Value: true,
		Source: "https://mariadb.com/docs/tools/mariadb-enterprise-operator/suspend-reconciliation"},
	{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization", Field: "spec.suspend", Value: true,
		Source: "https://fluxcd.io/flux/components/kustomize/kustomizations/#suspend"},
	{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease", Field: "spec.suspend", Value: true,
		Source: "https://fluxcd.io/flux/components/helm/helmreleases/#suspend"},
}
