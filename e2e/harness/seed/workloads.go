package seed

import (
	"fmt"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workloadObjects returns what runs in one namespace: Deployments, a StatefulSet with claims, a
// DaemonSet, batch work, and the Services before them.
func workloadObjects(namespace, prefix string) []client.Object {
	return []client.Object{
		newDeployment(namespace, "web", 2), newService(namespace, "web", "web"),
		newDeployment(namespace, "api", 1), newService(namespace, "api", "api"),
		statefulSet(namespace, "db", prefix), newHeadlessService(namespace, "db"),
		daemonSet(namespace, "agent"), newJob(namespace, "migrate"), cronJob(namespace, "nightly"),
		&corev1.Service{ObjectMeta: objectMeta(namespace, "external"), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com",
		}},
		&corev1.PodTemplate{ObjectMeta: objectMeta(namespace, "template"), Template: podTemplate("template")},
	}
}

func appSelector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func podTemplate(app string, volumes ...corev1.Volume) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: withLabels("app=" + app), Annotations: map[string]string{"sample.holdfast.io/text": awkwardText}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			PriorityClassName:             "",
			ServiceAccountName:            "account-0",
			Volumes:                       volumes,
			Containers: []corev1.Container{{
				Name: app, Image: "registry.k8s.io/pause:3.10",
				Env:   []corev1.EnvVar{{Name: "GREETING", Value: awkwardGreeting}},
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("8Mi"),
				}},
			}},
		},
	}
}

const awkwardGreeting = `hello "world" <&> é`

func newDeployment(namespace, app string, replicas int32) *appsv1.Deployment {
	config := corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "config-000"},
	}}}
	return &appsv1.Deployment{
		ObjectMeta: objectMeta(namespace, app, "app="+app),
		Spec: appsv1.DeploymentSpec{
			Replicas: new(replicas), Selector: appSelector(app), Template: podTemplate(app, config),
			// Without nodes it never gets ready, and that it took too long would change its status
			// ten minutes later, in the middle of a comparison.
			ProgressDeadlineSeconds: new(int32(math.MaxInt32)),
		},
	}
}

func newService(namespace, app, target string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: objectMeta(namespace, app, "app="+target),
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": target},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}
}

func newHeadlessService(namespace, app string) *corev1.Service {
	s := newService(namespace, app, app)
	s.Spec.ClusterIP = corev1.ClusterIPNone
	return s
}

func statefulSet(namespace, app, prefix string) *appsv1.StatefulSet {
	claim := corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: withLabels("app=" + app)},
		Spec:       claimSpec(storageClassName(prefix), ""),
	}
	return &appsv1.StatefulSet{
		ObjectMeta: objectMeta(namespace, app, "app="+app),
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)), ServiceName: app, Selector: appSelector(app), Template: podTemplate(app),
			PodManagementPolicy:  appsv1.ParallelPodManagement, // without nodes the first pod never gets ready
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{claim},
		},
	}
}

func daemonSet(namespace, app string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: objectMeta(namespace, app, "app="+app),
		Spec:       appsv1.DaemonSetSpec{Selector: appSelector(app), Template: podTemplate(app)},
	}
}

func jobSpec(app string) batchv1.JobSpec {
	template := podTemplate(app)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobSpec{Suspend: new(true), Template: template}
}

func newJob(namespace, app string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: objectMeta(namespace, app), Spec: jobSpec(app)}
}

func cronJob(namespace, app string) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: objectMeta(namespace, app),
		Spec: batchv1.CronJobSpec{
			Schedule: "0 3 * * *", Suspend: new(true),
			JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: withLabels()}, Spec: jobSpec(app)},
		},
	}
}

func storageClassName(prefix string) string { return prefix + "-manual" }

func claimSpec(class, volume string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(class), VolumeName: volume,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

// storageObjects returns volumes and, for those that no StatefulSet claims, their claims. Every volume is
// reserved for one claim, so binding is certain.
func storageObjects(namespace, prefix string) []client.Object {
	objects := []client.Object{newVolume(namespace, prefix, "data-db-0")}
	for i := range 2 {
		name := fmt.Sprintf("archive-%d", i)
		objects = append(objects, newVolume(namespace, prefix, name), &corev1.PersistentVolumeClaim{
			ObjectMeta: objectMeta(namespace, name), Spec: claimSpec(storageClassName(prefix), namespace+"-"+name),
		})
	}
	return objects
}

func newVolume(namespace, prefix, claim string) *corev1.PersistentVolume {
	name := namespace + "-" + claim
	return &corev1.PersistentVolume{
		ObjectMeta: objectMeta("", name),
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              storageClassName(prefix),
			ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "csi.sample.holdfast.io", VolumeHandle: name,
			}},
		},
	}
}
