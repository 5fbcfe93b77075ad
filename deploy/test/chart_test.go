package deploytest

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const chartDir = "../helm/annals"

var chartRoles = []string{"write", "read", "projector", "pipeline", "console"}

// variants are values with which the chart is rendered.
var variants = map[string]map[string]any{
	"existing secret": {"secrets": map[string]any{"existingSecret": "annals-secrets"}},
	"values as secrets": {"secrets": map[string]any{"values": map[string]any{
		"ANNALS_EVENTSTORE": "esdb://a:2113", "ANNALS_POSTGRES": "postgres://a@b/c", "ANNALS_HASH_KEY": "0f", "ANNALS_SEAL_KEY": "0f",
	}}},
	"everything": {
		"secrets":          map[string]any{"existingSecret": "annals-secrets"},
		"authorities":      map[string]any{"existingConfigMap": "authorities"},
		"settings":         map[string]any{"ANNALS_INDEX_CA": "/certificates/ca.crt", "ANNALS_LOG_LEVEL": "warn", "ANNALS_EMBEDDINGS_MODEL": "/models/model.jar"},
		"models":           map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "models", "readOnly": true}},
		"imagePullSecrets": []any{map[string]any{"name": "registry"}},
		"roles": map[string]any{"read": map[string]any{
			"replicas": 3, "autoscaling": map[string]any{"enabled": true},
			"nodeSelector": map[string]any{"disk": "ssd"}, "podAnnotations": map[string]any{"a": "b"},
		}},
		"ingress": map[string]any{
			"enabled": true, "className": "nginx", "annotations": map[string]any{"a": "b"},
			"tls": []any{map[string]any{"secretName": "tls", "hosts": []any{"memory.example.com"}}},
		},
		"networkPolicy":  map[string]any{"clients": []any{map[string]any{"podSelector": map[string]any{}}}},
		"podMonitor":     map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
		"prometheusRule": map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
		"dashboards":     map[string]any{"enabled": true, "annotations": map[string]any{"folder": "Annals"}},
	},
	"little": {
		"secrets":        map[string]any{"existingSecret": "annals-secrets"},
		"proxy":          map[string]any{"enabled": false},
		"roles":          map[string]any{"console": map[string]any{"enabled": false}},
		"networkPolicy":  map[string]any{"enabled": false},
		"serviceAccount": map[string]any{"create": false},
	},
}

// Helm finds nothing to complain about but the icon, which a service has none of.
func TestChart_Lint(t *testing.T) {
	for name, values := range variants {
		for _, m := range lint.All(chartDir, values, "annals", true).Messages {
			if m.Severity >= support.WarningSev || !strings.Contains(m.Error(), "icon is recommended") {
				t.Errorf("%s: %s", name, m)
			}
		}
	}
}

// What the chart renders are objects that Kubernetes knows, without a field that it does not, and each
// selector finds the pods that it is for.
func TestChart_Objects(t *testing.T) {
	for name, values := range variants {
		t.Run(name, func(t *testing.T) {
			objects, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			pods := map[string]labels.Set{}
			for _, d := range of[*appsv1.Deployment](objects) {
				pods[d.Name] = d.Spec.Template.Labels
			}
			for _, d := range of[*appsv1.Deployment](objects) {
				checkPod(t, d)
				if selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err != nil || count(selector, pods) != 1 {
					t.Errorf("%s does not select its own pods alone: %v", d.Name, err)
				}
			}
			for _, s := range of[*corev1.Service](objects) {
				if n := count(labels.SelectorFromSet(s.Spec.Selector), pods); n != 1 {
					t.Errorf("service %s is of %d deployments", s.Name, n)
				}
			}
			for _, b := range of[*policyv1.PodDisruptionBudget](objects) {
				if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err != nil || count(selector, pods) != 1 {
					t.Errorf("budget %s is of no deployment: %v", b.Name, err)
				}
			}
			policies := of[*netv1.NetworkPolicy](objects)
			for _, p := range policies {
				if selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector); err != nil || count(selector, pods) != 1 {
					t.Errorf("policy %s is of no deployment: %v", p.Name, err)
				}
			}
			if len(of[*policyv1.PodDisruptionBudget](objects)) != len(pods) || name != "little" && len(policies) != len(pods) {
				t.Errorf("%d deployments, with %d network policies", len(pods), len(policies))
			}
		})
	}
}

// Each role is a deployment of two, whose settings the service knows.
func TestChart_Roles(t *testing.T) {
	objects, err := render(t, variants["existing secret"])
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, d := range of[*appsv1.Deployment](objects) {
		for _, v := range d.Spec.Template.Spec.Containers[0].Env {
			if d.Labels["app.kubernetes.io/component"] == "proxy" {
				continue
			}
			if !slices.Contains(settings(t), v.Name) {
				t.Errorf("%s: the service has no setting %s", d.Name, v.Name)
			}
			if v.Name == "ANNALS_ROLES" {
				found = append(found, v.Value)
				if d.Spec.Replicas == nil || *d.Spec.Replicas != 2 || !strings.HasSuffix(d.Name, "-"+v.Value) {
					t.Errorf("%s has the role %s and %v processes", d.Name, v.Value, d.Spec.Replicas)
				}
			}
		}
	}
	slices.Sort(found)
	if want := slices.Sorted(slices.Values(chartRoles)); !slices.Equal(found, want) {
		t.Errorf("roles %v, want %v", found, want)
	}
}

// The rules and dashboards of the chart are those of the other installations, to the byte: the chart has links to them.
func TestChart_Monitoring(t *testing.T) {
	documents, err := renderTexts(t, variants["everything"])
	if err != nil {
		t.Fatal(err)
	}
	var rule struct {
		Kind     string
		Metadata struct{ Labels map[string]string }
		Spec     any
	}
	for _, document := range documents {
		if strings.Contains(document, "kind: PrometheusRule\n") {
			if err := yaml.Unmarshal([]byte(document), &rule); err != nil {
				t.Fatal(err)
			}
		}
	}
	var want any
	if err := yaml.Unmarshal([]byte(read(t, "prometheus/alerts.yaml")), &want); err != nil {
		t.Fatal(err)
	}
	if rule.Kind == "" || rule.Metadata.Labels["release"] != "prometheus" || !reflect.DeepEqual(rule.Spec, want) {
		t.Errorf("the PrometheusRule differs from prometheus/alerts.yaml:\n%v", rule)
	}
	objects, err := render(t, variants["everything"])
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, c := range of[*corev1.ConfigMap](objects) {
		for name, text := range c.Data {
			file, is := strings.CutPrefix(name, "annals-")
			if !is {
				continue
			}
			found++
			if strings.TrimSpace(text) != strings.TrimSpace(read(t, "grafana/"+file)) || c.Labels["grafana_dashboard"] != "1" {
				t.Errorf("%s differs from grafana/%s, or no sidecar finds it", name, file)
			}
		}
	}
	if want := len(dashboards(t)); found != want {
		t.Errorf("the chart has %d dashboards, want %d", found, want)
	}
}

// Each process has the volume with the embedding model.
func TestChart_Models(t *testing.T) {
	objects, err := render(t, variants["everything"])
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range of[*appsv1.Deployment](objects) {
		if d.Labels["app.kubernetes.io/component"] == "proxy" {
			continue
		}
		mounts := d.Spec.Template.Spec.Containers[0].VolumeMounts
		mounted := slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool {
			return m.Name == "models" && m.MountPath == "/models" && m.ReadOnly
		})
		claimed := slices.ContainsFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == "models" && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "models"
		})
		if !mounted || !claimed {
			t.Errorf("%s lacks the volume with the model", d.Name)
		}
	}
}

// The pods restart if the text changes that stands for the content of an existing Secret.
func TestChart_RestartsForASecret(t *testing.T) {
	checksums := map[string]bool{}
	for _, version := range []string{"", "2026-11-26"} {
		objects, err := render(t, map[string]any{
			"secrets": map[string]any{"existingSecret": "annals-secrets", "version": version},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range of[*appsv1.Deployment](objects) {
			if sum := d.Spec.Template.Annotations["checksum/secret"]; sum != "" {
				checksums[sum] = true
			}
		}
	}
	if len(checksums) != 2 {
		t.Errorf("checksums %v", checksums)
	}
}

// Wrong values are refused with what is wrong about them.
func TestChart_WrongValues(t *testing.T) {
	secret := map[string]any{"existingSecret": "s"}
	for want, values := range map[string]map[string]any{
		"secrets.existingSecret": {},
		"ANNALS_SEAL_KEY":        {"secrets": map[string]any{"values": map[string]any{"ANNALS_EVENTSTORE": "a", "ANNALS_POSTGRES": "b", "ANNALS_HASH_KEY": "c"}}},
		"apiURL":                 {"secrets": secret, "apiURL": "memory.example.com"},
		"worker":                 {"secrets": secret, "roles": map[string]any{"worker": map[string]any{}}},
		"replicas":               {"secrets": secret, "roles": map[string]any{"read": map[string]any{"replicas": "two"}}},
		"propertyNames":          {"secrets": secret, "settings": map[string]any{"log-level": "warn"}},
		"proxy.enabled":          {"secrets": secret, "ingress": map[string]any{"enabled": true}, "proxy": map[string]any{"enabled": false}},
	} {
		_, err := render(t, values)
		if err == nil || want != "propertyNames" && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// render returns the objects of the chart, each read strictly as its kind. It leaves out the kinds of other
// APIs.
func render(t *testing.T, values map[string]any) ([]runtime.Object, error) {
	t.Helper()
	documents, err := renderTexts(t, values)
	if err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for _, document := range documents {
		if strings.Contains(document, "apiVersion: monitoring.coreos.com/") {
			continue
		}
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Errorf("%v\n%s", err, document)
			continue
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// renderTexts returns the documents that the chart renders.
func renderTexts(t *testing.T, values map[string]any) (documents []string, err error) {
	t.Helper()
	chart, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "memory", Namespace: "annals", IsInstall: true, Revision: 1}
	all, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return nil, err
	}
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") {
			documents = append(documents, split(text)...)
		}
	}
	return documents, nil
}

// split returns the documents of a YAML file that are not empty.
func split(text string) (documents []string) {
	for _, document := range regexp.MustCompile(`(?m)^---\s*$`).Split(text, -1) {
		comments := regexp.MustCompile(`(?m)^\s*(#.*)?$`)
		if strings.TrimSpace(comments.ReplaceAllString(document, "")) != "" {
			documents = append(documents, document)
		}
	}
	return documents
}

// checkPod reports what a pod may do and need not, and what Kubernetes must know about it.
func checkPod(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	pod := d.Spec.Template.Spec
	if messages := validation.IsDNS1123Label(d.Name); len(messages) > 0 {
		t.Errorf("%s: %v", d.Name, messages)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken ||
		pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		t.Errorf("%s gets a token or variables of services", d.Name)
	}
	s := pod.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil ||
		s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s may run as root or without seccomp", d.Name)
	}
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, c := range pod.Containers {
		of := c.SecurityContext
		if of == nil || of.ReadOnlyRootFilesystem == nil || !*of.ReadOnlyRootFilesystem ||
			of.AllowPrivilegeEscalation == nil || *of.AllowPrivilegeEscalation ||
			of.Capabilities == nil || !slices.Contains(of.Capabilities.Drop, "ALL") {
			t.Errorf("%s may do more than it needs", d.Name)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || c.LivenessProbe == nil ||
			c.ReadinessProbe == nil {
			t.Errorf("%s has no resources or probes", d.Name)
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s mounts %s, which is no volume", d.Name, m.Name)
			}
		}
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			port := p.HTTPGet.Port.StrVal
			if !slices.ContainsFunc(c.Ports, func(has corev1.ContainerPort) bool { return has.Name == port }) {
				t.Errorf("%s: a probe asks the port %q", d.Name, port)
			}
		}
	}
}

// of returns the objects of a kind.
func of[T runtime.Object](objects []runtime.Object) (found []T) {
	for _, object := range objects {
		if o, ok := object.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

func count(selector labels.Selector, pods map[string]labels.Set) (n int) {
	for _, has := range pods {
		if selector.Matches(has) {
			n++
		}
	}
	return n
}
