{{/* Labels by which the pods are found. They cannot change after the first installation. */}}
{{- define "keepsake.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "keepsake.labels" -}}
{{ include "keepsake.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* One release named "keepsake" has plain names; any other has both words. 40 characters leave room
     for what Kubernetes appends to the name of a StatefulSet. */}}
{{- define "keepsake.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "keepsake.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}
{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The variable that sets an option: KEEPSAKE__KAFKA__LIBRDKAFKA__SASL_PASSWORD. librdkafka's own
     options have dots, which are single underscores there. */}}
{{- define "keepsake.variable" -}}
{{- if hasPrefix "kafka.librdkafka." . -}}
KEEPSAKE__KAFKA__LIBRDKAFKA__{{ trimPrefix "kafka.librdkafka." . | replace "." "_" | upper }}
{{- else -}}
KEEPSAKE__{{ . | replace "." "__" | upper }}
{{- end -}}
{{- end -}}

{{/* One value as TOML. Helm reads every number as a float; Keepsake takes whole numbers for either. */}}
{{- define "keepsake.tomlValue" -}}
{{- if kindIs "string" . -}}{{ . | toJson }}
{{- else if kindIs "bool" . -}}{{ . }}
{{- else if kindIs "slice" . -}}
[{{ range $n, $item := . }}{{ if $n }}, {{ end }}{{ include "keepsake.tomlValue" $item }}{{ end }}]
{{- else if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end }}
{{- else -}}{{ . }}
{{- end -}}
{{- end -}}

{{/* A table and its tables as TOML: values first, because TOML takes those after a heading for its own.
     Names are quoted, because those of librdkafka have dots. Takes `table` and `path`. */}}
{{- define "keepsake.tomlTable" -}}
{{- range $name, $value := .table }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ $name | quote }} = {{ include "keepsake.tomlValue" $value }}
{{- end }}
{{- end }}
{{- range $name, $value := .table }}
{{- if kindIs "map" $value }}
{{- $path := append $.path ($name | quote) }}

[{{ join "." $path }}]
{{- include "keepsake.tomlTable" (dict "table" $value "path" $path) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The options of the chart's user, with those that the chart sets: the page's address, and the
     tenants' keys by the files of their Secrets. */}}
{{- define "keepsake.toml" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "http" (merge (dict "listen" "0.0.0.0:9464") ($config.http | default dict)) -}}
{{- $auth := $config.auth | default dict -}}
{{- $tenants := $auth.tenants | default dict -}}
{{- range $tenant, $_ := .Values.secrets.tenants -}}
{{- $file := printf "/run/secrets/keepsake/tenants/%s" $tenant -}}
{{- $_ := set $tenants $tenant (dict "secret_file" $file) -}}
{{- end -}}
{{- if $tenants }}{{ $_ := set $auth "tenants" $tenants }}{{ $_ := set $config "auth" $auth }}{{ end -}}
# Written by the Helm chart from its values.
{{ include "keepsake.tomlTable" (dict "table" $config "path" list) | trim }}
{{ end -}}

{{/* Refuses values that would install something that cannot work, or that would show a secret. */}}
{{- define "keepsake.check" -}}
{{- $config := .Values.config -}}
{{- if not $config.kafka.bootstrap_servers -}}
{{- fail "config.kafka.bootstrap_servers: is empty; give the brokers as host:port" -}}
{{- end -}}
{{- if eq $config.kafka.bootstrap_servers "embedded" -}}
{{- fail "config.kafka.bootstrap_servers: the embedded broker serves one process and its own machine; give the brokers as host:port" -}}
{{- end -}}
{{- if gt (int .Values.replicas) (int $config.topics.partitions) -}}
{{- fail (printf "replicas: %d processes for %d partitions; a process without a partition is never ready, see config.topics.partitions" (int .Values.replicas) (int $config.topics.partitions)) -}}
{{- end -}}
{{- $grace := int .Values.terminationGracePeriodSeconds -}}
{{- if lt $grace (int (add 10 (div (int $config.limits.shutdown_ms) 1000))) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d; must be at least 10 more than config.limits.shutdown_ms (%d), or a process is killed while it hands its partitions over" $grace (int $config.limits.shutdown_ms)) -}}
{{- end -}}
{{- if hasKey ($config.http | default dict) "listen" -}}
{{- fail "config.http.listen: the chart sets it, because probes and the Service need its port" -}}
{{- end -}}
{{- range $name, $_ := $config.kafka.librdkafka -}}
{{- if or (contains "password" $name) (contains "secret" $name) (eq $name "ssl.key.pem") -}}
{{- fail (printf "config.kafka.librdkafka.%s: a ConfigMap shows it to everybody; name its Secret in secrets.options" $name) -}}
{{- end -}}
{{- end -}}
{{- if $config.topics.marks_key -}}
{{- fail "config.topics.marks_key: a ConfigMap shows it to everybody; name its Secret in secrets.options" -}}
{{- end -}}
{{- range $tenant, $key := ($config.auth | default dict).tenants -}}
{{- if $key.secret -}}
{{- fail (printf "config.auth.tenants.%s.secret: a ConfigMap shows it to everybody; name its Secret in secrets.tenants" $tenant) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .Values.secrets.files -}}
{{- if eq $name "tenants" -}}
{{- fail "secrets.files.tenants: is the directory of secrets.tenants; take another name" -}}
{{- end -}}
{{- end -}}
{{- end -}}
