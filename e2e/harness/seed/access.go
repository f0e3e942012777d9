package seed

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// accessObjects returns the service accounts and RBAC of one namespace.
func accessObjects(namespace string) []client.Object {
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps", "pods/log"}, Verbs: []string{"get", "list"}}}
	var objects []client.Object
	for i := range 8 {
		account, role := fmt.Sprintf("account-%d", i), fmt.Sprintf("reader:%d", i)
		objects = append(objects,
			&corev1.ServiceAccount{ObjectMeta: objectMeta(namespace, account), AutomountServiceAccountToken: new(i%2 == 0)},
			&rbacv1.Role{ObjectMeta: objectMeta(namespace, role), Rules: rules},
			newRoleBinding(namespace, role, role, account))
	}
	for _, name := range []string{pathSegmentName(), "..."} {
		objects = append(objects, &rbacv1.Role{ObjectMeta: objectMeta(namespace, name), Rules: rules}, newRoleBinding(namespace, name, name, "account-0"))
	}
	return objects
}

func newRoleBinding(namespace, name, role, account string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: objectMeta(namespace, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}
}

// policyObjects returns the network, disruption and limit objects of one namespace.
func policyObjects(namespace string) []client.Object {
	path := networkingv1.PathTypePrefix
	return []client.Object{
		&networkingv1.NetworkPolicy{ObjectMeta: objectMeta(namespace, "only-http"), Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *appSelector("web"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		}},
		&networkingv1.Ingress{ObjectMeta: objectMeta(namespace, "web"), Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
			Host: namespace + ".example.com",
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: &path, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: "web", Port: networkingv1.ServiceBackendPort{Name: "http"},
				}},
			}}}},
		}}}},
		&policyv1.PodDisruptionBudget{ObjectMeta: objectMeta(namespace, "web"), Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: appSelector("web"),
		}},
		&corev1.LimitRange{ObjectMeta: objectMeta(namespace, "defaults"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypePersistentVolumeClaim, Max: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Ti")},
		}}}},
		&corev1.ResourceQuota{ObjectMeta: objectMeta(namespace, "plenty"), Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourceServices: resource.MustParse("100")},
		}},
	}
}

// clusterWide returns the estate's cluster-scoped objects, apart from volumes and custom resources.
func clusterWide(prefix string) []client.Object {
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}}
	objects := []client.Object{
		&storagev1.StorageClass{
			ObjectMeta: objectMeta("", storageClassName(prefix)), Provisioner: "kubernetes.io/no-provisioner",
			ReclaimPolicy: new(corev1.PersistentVolumeReclaimRetain), VolumeBindingMode: new(storagev1.VolumeBindingImmediate),
		},
		&schedulingv1.PriorityClass{ObjectMeta: objectMeta("", prefix+"-high"), Value: 1000, Description: awkwardText},
		&networkingv1.IngressClass{ObjectMeta: objectMeta("", prefix+"-web"), Spec: networkingv1.IngressClassSpec{Controller: Group + "/web"}},
	}
	for _, suffix := range []string{":reader", ":writer", ":" + pathSegmentName()} {
		objects = append(objects,
			&rbacv1.ClusterRole{ObjectMeta: objectMeta("", prefix+suffix), Rules: rules},
			&rbacv1.ClusterRoleBinding{
				ObjectMeta: objectMeta("", prefix+suffix),
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: prefix + suffix},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "sample:visitors"}},
			})
	}
	return append(objects, &rbacv1.ClusterRole{
		ObjectMeta: objectMeta("", prefix+":aggregate"),
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{
			MatchLabels: map[string]string{Group + "/aggregate": "yes"},
		}}},
	})
}
