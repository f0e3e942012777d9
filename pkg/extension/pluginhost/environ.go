package pluginhost

import (
	"fmt"
	"slices"
	"strings"
)

// ownPrefix begins the variables of our own settings. They may hold passwords, and no plugin gets
// them.
const ownPrefix = "HOLDFAST_"

// givenEnv are the variables that every plugin gets: what programs need to run and to reach the
// network, and what the SDKs of clouds, Kubernetes and Velero read. Everything else in the
// environment of a service is none of a plugin's business.
var givenEnv = []string{
	"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_*", "HOSTNAME", "LD_LIBRARY_PATH",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK",
	"KUBECONFIG", "KUBERNETES_*", "VELERO_*", "OTEL_*",
	"AWS_*", "GOOGLE_*", "CLOUDSDK_*", "AZURE_*", "ALIBABA_CLOUD_*", "OS_*",
}

// checkEnvName refuses what is no name of a variable, or would let our own settings through.
func checkEnvName(name string) error {
	stem, open := strings.CutSuffix(name, "*")
	switch {
	case stem == "" || strings.ContainsAny(stem, "=* \t"):
		return fmt.Errorf("%q is not the name of a variable, nor the beginning of one and *", name)
	case strings.HasPrefix(stem, ownPrefix) || open && strings.HasPrefix(ownPrefix, stem):
		return fmt.Errorf("%q: the settings of Holdfast may hold passwords, which plugins do not get", name)
	}
	return nil
}

// pluginEnviron returns the environment of plugins.
func pluginEnviron(cfg Config) []string {
	allowed := slices.Concat(givenEnv, cfg.AllowEnv)
	var env []string
	for _, entry := range cfg.Environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, ownPrefix) && slices.ContainsFunc(allowed, func(pattern string) bool { return matchesPattern(pattern, name) }) {
			env = append(env, entry)
		}
	}
	if cfg.Namespace != "" {
		env = append(env, "VELERO_NAMESPACE="+cfg.Namespace)
	}
	if cfg.Kubeconfig != "" {
		env = append(env, "KUBECONFIG="+cfg.Kubeconfig)
	}
	return env
}

// InstalledCredentials is a key of configurations that plugins never see: its value, the path of a
// file, is what they find in their environment as the credentials of the installation.
const InstalledCredentials = "holdfast.io/installed-credentials"

// credentialsFile is Velero's key for the path of a location's own credentials.
const credentialsFile = "credentialsFile"

// installedEnv are the variables that `velero install` sets to the path of the installation's
// credentials (Velero 1.18).
var installedEnv = []string{
	"AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CREDENTIALS_FILE", "ALIBABA_CLOUD_CREDENTIALS_FILE",
}

// installedVariables returns the variables that name the file. Those that the environment has already stay.
func installedVariables(environ []string, file string) []string {
	var env []string
	for _, name := range installedEnv {
		if file != "" && !slices.ContainsFunc(environ, func(entry string) bool { return strings.HasPrefix(entry, name+"=") }) {
			env = append(env, name+"="+file)
		}
	}
	return env
}

func matchesPattern(pattern, name string) bool {
	if stem, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(name, stem)
	}
	return pattern == name
}
