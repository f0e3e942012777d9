package reference

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// clusterKinds have no namespace. They count where the kinds of the cluster are not known.
var clusterKinds = []schema.GroupKind{
	storageClasses, priorityClasses, volumes, definitions, {Kind: "Node"}, {Kind: "Namespace"},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}, {Group: "networking.k8s.io", Kind: "IngressClass"},
	{Group: "cert-manager.io", Kind: "ClusterIssuer"}, {Group: "postgresql.cnpg.io", Kind: "ClusterImageCatalog"},
	{Group: "gateway.networking.k8s.io", Kind: "GatewayClass"}, {Group: "pkg.crossplane.io", Kind: "Function"},
	{Group: "pkg.crossplane.io", Kind: "DeploymentRuntimeConfig"},
}

// builtinRules are those of published types. Each line has the group, the kinds, the relation, what is
// named ("-" where the fields beside the name say it) and the fields. Behind what is named "@" gives the
// namespace, behind a field "!" a word that is no name. Fields that schemas reveal are here where the relation is
// another one, or a restore is ordered by them: backups of other servers are read without schemas.
var builtinRules = parseTable(`
cluster.x-k8s.io Cluster builtOn - spec.infrastructureRef spec.controlPlaneRef
cluster.x-k8s.io Cluster madeFrom ClusterClass.* spec.topology.class spec.topology.classRef
cluster.x-k8s.io ClusterClass madeFrom - spec.infrastructure.ref spec.infrastructure.templateRef spec.controlPlane.ref spec.controlPlane.templateRef
cluster.x-k8s.io ClusterClass madeFrom - spec.controlPlane.machineInfrastructure.ref spec.controlPlane.machineInfrastructure.templateRef
cluster.x-k8s.io ClusterClass madeFrom - spec.workers.machineDeployments[].template.bootstrap.ref spec.workers.machineDeployments[].bootstrap.templateRef
cluster.x-k8s.io ClusterClass madeFrom - spec.workers.machineDeployments[].template.infrastructure.ref spec.workers.machineDeployments[].infrastructure.templateRef
cluster.x-k8s.io ClusterClass madeFrom - spec.workers.machinePools[].template.bootstrap.ref spec.workers.machinePools[].bootstrap.templateRef
cluster.x-k8s.io ClusterClass madeFrom - spec.workers.machinePools[].template.infrastructure.ref spec.workers.machinePools[].infrastructure.templateRef
cluster.x-k8s.io Machine builtOn - spec.infrastructureRef spec.bootstrap.configRef
cluster.x-k8s.io Machine reads Secret spec.bootstrap.dataSecretName
cluster.x-k8s.io Machine,MachineSet,MachineDeployment,MachinePool,MachineHealthCheck belongsTo Cluster.* spec.clusterName
cluster.x-k8s.io MachineSet,MachineDeployment,MachinePool madeFrom - spec.template.spec.infrastructureRef spec.template.spec.bootstrap.configRef
cluster.x-k8s.io MachineSet,MachineDeployment,MachinePool reads Secret spec.template.spec.bootstrap.dataSecretName
cluster.x-k8s.io MachineHealthCheck madeFrom - spec.remediationTemplate spec.remediation.templateRef
controlplane.cluster.x-k8s.io KubeadmControlPlane madeFrom - spec.machineTemplate.infrastructureRef spec.machineTemplate.spec.infrastructureRef
addons.cluster.x-k8s.io ClusterResourceSet reads Secret spec.resources[]
addons.cluster.x-k8s.io ClusterResourceSetBinding belongsTo Cluster.cluster.x-k8s.io spec.clusterName
addons.cluster.x-k8s.io ClusterResourceSetBinding belongsTo ClusterResourceSet.* spec.bindings[].clusterResourceSetName
addons.cluster.x-k8s.io ClusterResourceSetBinding reads Secret spec.bindings[].resources[]
ipam.cluster.x-k8s.io IPAddress,IPAddressClaim belongsTo - spec.poolRef
ipam.cluster.x-k8s.io IPAddress belongsTo IPAddressClaim.* spec.claimRef
ipam.cluster.x-k8s.io IPAddressClaim belongsTo Cluster.cluster.x-k8s.io spec.clusterName

cert-manager.io Certificate writes Secret spec.secretName
cert-manager.io Certificate,CertificateRequest issuedBy Issuer.cert-manager.io spec.issuerRef
acme.cert-manager.io Order,Challenge issuedBy Issuer.cert-manager.io spec.issuerRef
cert-manager.io Issuer reads Secret spec.ca.secretName
cert-manager.io Issuer writes Secret spec.acme.privateKeySecretRef
cert-manager.io Issuer reads Secret spec.venafi.tpp.credentialsRef
cert-manager.io ClusterIssuer reads Secret@cert-manager spec.ca.secretName spec.acme.externalAccountBinding.keySecretRef
cert-manager.io ClusterIssuer reads Secret@cert-manager spec.acme.solvers[].dns01.acmeDNS.accountSecretRef spec.acme.solvers[].dns01.akamai.accessTokenSecretRef
cert-manager.io ClusterIssuer reads Secret@cert-manager spec.acme.solvers[].dns01.akamai.clientSecretSecretRef spec.acme.solvers[].dns01.akamai.clientTokenSecretRef
cert-manager.io ClusterIssuer reads Secret@cert-manager spec.acme.solvers[].dns01.azureDNS.clientSecretSecretRef spec.acme.solvers[].dns01.cloudDNS.serviceAccountSecretRef
cert-manager.io ClusterIssuer reads Secret@cert-manager spec.acme.solvers[].dns01.cloudflare.apiKeySecretRef spec.acme.solvers[].dns01.cloudflare.apiTokenSecretRef
cert-manager.io ClusterIssuer reads Secret@cert-manager spec.acme.solvers[].dns01.digitalocean.tokenSecretRef spec.acme.solvers[].dns01.rfc2136.tsigSecretSecretRef
cert-manager.io ClusterIssuer reads Secret@cert-manager spec.acme.solvers[].dns01.route53.accessKeyIDSecretRef spec.acme.solvers[].dns01.route53.secretAccessKeySecretRef
cert-manager.io ClusterIssuer reads Secret@cert-manager spec.vault.auth.appRole.secretRef spec.vault.auth.kubernetes.secretRef spec.vault.auth.tokenSecretRef
cert-manager.io ClusterIssuer reads Secret@cert-manager spec.vault.auth.clientCertificate.secretName spec.vault.caBundleSecretRef spec.vault.clientCertSecretRef spec.vault.clientKeySecretRef
cert-manager.io ClusterIssuer reads Secret@cert-manager spec.venafi.cloud.apiTokenSecretRef spec.venafi.tpp.credentialsRef spec.venafi.tpp.caBundleSecretRef
cert-manager.io ClusterIssuer writes Secret@cert-manager spec.acme.privateKeySecretRef

postgresql.cnpg.io Backup,ScheduledBackup,Pooler,Database,Publication,Subscription belongsTo Cluster.* spec.cluster
postgresql.cnpg.io Cluster madeFrom Backup.* spec.bootstrap.recovery.backup
postgresql.cnpg.io Cluster madeFrom - spec.bootstrap.recovery.volumeSnapshots.storage spec.bootstrap.recovery.volumeSnapshots.walStorage spec.imageCatalogRef
postgresql.cnpg.io Cluster reads Secret spec.superuserSecret spec.bootstrap.initdb.secret spec.bootstrap.recovery.secret spec.bootstrap.pg_basebackup.secret
postgresql.cnpg.io Cluster reads Secret spec.certificates.serverCASecret spec.certificates.serverTLSSecret spec.certificates.clientCASecret spec.certificates.replicationTLSSecret
postgresql.cnpg.io Cluster reads Secret spec.externalClusters[].password spec.externalClusters[].sslCert spec.externalClusters[].sslKey spec.externalClusters[].sslRootCert
postgresql.cnpg.io Cluster reads Secret spec.backup.barmanObjectStore.s3Credentials.accessKeyId spec.backup.barmanObjectStore.s3Credentials.secretAccessKey
postgresql.cnpg.io Cluster reads Secret spec.backup.barmanObjectStore.azureCredentials.connectionString spec.backup.barmanObjectStore.azureCredentials.storageKey
postgresql.cnpg.io Cluster reads Secret spec.backup.barmanObjectStore.googleCredentials.applicationCredentials spec.backup.barmanObjectStore.endpointCA
postgresql.cnpg.io Cluster reads Secret spec.externalClusters[].barmanObjectStore.s3Credentials.accessKeyId spec.externalClusters[].barmanObjectStore.s3Credentials.secretAccessKey
postgresql.cnpg.io Cluster reads Secret spec.externalClusters[].barmanObjectStore.azureCredentials.connectionString spec.externalClusters[].barmanObjectStore.azureCredentials.storageKey
postgresql.cnpg.io Cluster reads Secret spec.externalClusters[].barmanObjectStore.googleCredentials.applicationCredentials spec.externalClusters[].barmanObjectStore.endpointCA
postgresql.cnpg.io Cluster reads Secret spec.postgresql.ldap.bindSearchAuth.bindPassword
postgresql.cnpg.io Cluster provisionedBy StorageClass.storage.k8s.io spec.storage.storageClass spec.walStorage.storageClass spec.tablespaces[].storage.storageClass

argoproj.io Application belongsTo AppProject.* spec.project
argoproj.io ApplicationSet belongsTo AppProject.* spec.template.spec.project

kustomize.toolkit.fluxcd.io Kustomization madeFrom GitRepository.source.toolkit.fluxcd.io spec.sourceRef
helm.toolkit.fluxcd.io HelmRelease madeFrom HelmRepository.source.toolkit.fluxcd.io spec.chart.spec.sourceRef spec.chartRef
image.toolkit.fluxcd.io ImageUpdateAutomation madeFrom GitRepository.source.toolkit.fluxcd.io spec.sourceRef

*.crossplane.io * configuredBy ProviderConfig.* spec.providerConfigRef
*.crossplane.io * writes Secret spec.writeConnectionSecretToRef
*.upbound.io * configuredBy ProviderConfig.* spec.providerConfigRef
*.upbound.io * writes Secret spec.writeConnectionSecretToRef
pkg.crossplane.io Provider,Function configuredBy DeploymentRuntimeConfig.* spec.runtimeConfigRef
pkg.crossplane.io Provider,Function,Configuration pullsWith Secret@crossplane-system spec.packagePullSecrets[]
apiextensions.crossplane.io Composition,CompositionRevision madeFrom Function.pkg.crossplane.io spec.pipeline[].functionRef

kafka.strimzi.io KafkaTopic,KafkaUser,KafkaNodePool,KafkaRebalance belongsTo Kafka.* metadata.labels[strimzi.io/cluster]
kafka.strimzi.io KafkaConnector belongsTo KafkaConnect.* metadata.labels[strimzi.io/cluster]

gateway.networking.k8s.io Gateway madeFrom GatewayClass.* spec.gatewayClassName
gateway.networking.k8s.io Gateway servesWith Secret spec.listeners[].tls.certificateRefs[]
gateway.networking.k8s.io Gateway configuredBy - spec.infrastructure.parametersRef
gateway.networking.k8s.io GatewayClass configuredBy - spec.parametersRef
gateway.networking.k8s.io HTTPRoute,GRPCRoute,TLSRoute,TCPRoute,UDPRoute attachedTo Gateway.* spec.parentRefs[]
gateway.networking.k8s.io HTTPRoute,GRPCRoute,TLSRoute,TCPRoute,UDPRoute routesTo Service spec.rules[].backendRefs[]
gateway.networking.k8s.io HTTPRoute,GRPCRoute routesTo Service spec.rules[].filters[].requestMirror.backendRef
gateway.networking.k8s.io BackendTLSPolicy attachedTo Service spec.targetRefs[]
gateway.networking.k8s.io BackendTLSPolicy reads ConfigMap spec.validation.caCertificateRefs[]

networking.istio.io VirtualService attachedTo Gateway.* spec.gateways[]!mesh
networking.istio.io VirtualService routesTo VirtualService.* spec.http[].delegate
*.istio.io * attachedTo - spec.targetRef spec.targetRefs[]
extensions.istio.io WasmPlugin pullsWith Secret spec.imagePullSecret
`)

// parseTable returns the rules of a table.
func parseTable(table string) (rules []Rule) {
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		to, namespace, _ := strings.Cut(strings.TrimPrefix(words[3], "-"), "@")
		for kind := range strings.SplitSeq(words[1], ",") {
			for _, place := range words[4:] {
				field, reserved, _ := strings.Cut(place, "!")
				rules = append(rules, Rule{Group: words[0], Kind: kind, Field: field, To: to, Namespace: namespace, Relation: words[2], reserved: reserved})
			}
		}
	}
	return rules
}
