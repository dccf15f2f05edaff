{{/* Labels by which the pods are found. They cannot change after the first installation. */}}
{{- define "keepsake.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Pods of the gateway have another name, so that no selector of the service finds them. */}}
{{- define "keepsake.gateway.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-gateway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "keepsake.gateway.labels" -}}
{{ include "keepsake.gateway.selector" . }}
{{ include "keepsake.chart" . }}
{{- end -}}

{{- define "keepsake.labels" -}}
{{ include "keepsake.selector" . }}
{{ include "keepsake.chart" . }}
{{- end -}}

{{- define "keepsake.chart" -}}
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

{{/* What the pods of service and gateway share: who runs them, and where. */}}
{{- define "keepsake.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532 # the image's user
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch # a large store is not walked at each start
  seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "keepsake.container" -}}
image: {{ include "keepsake.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end -}}

{{- define "keepsake.topology" -}}
{{- with .Values.topologySpread }}
topologySpreadConstraints:
  {{- range . }}
  - topologyKey: {{ .topologyKey }}
    maxSkew: {{ .maxSkew }}
    whenUnsatisfiable: {{ .whenUnsatisfiable }}
    labelSelector: { matchLabels: {{ include $.selector $.root | fromYaml | toJson }} }
  {{- end }}
{{- end }}
{{- end -}}

{{/* Secrets as variables, and configuration and Secrets as files. */}}
{{- define "keepsake.env" -}}
{{- range .Values.secrets.options }}
- name: {{ include "keepsake.variable" .option }}
  valueFrom: { secretKeyRef: { name: {{ .secret | quote }}, key: {{ .key | quote }} } }
{{- end }}
{{- end -}}

{{- define "keepsake.mounts" -}}
- { name: config, mountPath: /etc/keepsake, readOnly: true }
- { name: tmp, mountPath: /tmp }
{{- if .Values.secrets.tenants }}
- { name: tenants, mountPath: /run/secrets/keepsake/tenants, readOnly: true }
{{- end }}
{{- range $dir, $_ := .Values.secrets.files }}
- { name: {{ printf "files-%s" $dir }}, mountPath: {{ printf "/run/secrets/keepsake/%s" $dir }}, readOnly: true }
{{- end }}
{{- end -}}

{{- define "keepsake.volumes" -}}
- { name: config, configMap: { name: {{ include "keepsake.name" . }} } }
- { name: tmp, emptyDir: {} }
{{- if .Values.secrets.tenants }}
- name: tenants
  projected:
    defaultMode: 0440
    sources:
      {{- range $tenant, $key := .Values.secrets.tenants }}
      - secret: { name: {{ $key.secret | quote }}, items: [{ key: {{ $key.key | quote }}, path: {{ $tenant | quote }} }] }
      {{- end }}
{{- end }}
{{- range $dir, $secret := .Values.secrets.files }}
- { name: {{ printf "files-%s" $dir }}, secret: { secretName: {{ $secret | quote }}, defaultMode: 0440 } }
{{- end }}
{{- end -}}

{{/* Name resolution and the brokers. Takes the values of `networkPolicy`. */}}
{{- define "keepsake.egress" -}}
- ports: [{ protocol: UDP, port: 53 }, { protocol: TCP, port: 53 }]
- ports:
    {{- range .kafka.ports }}
    - { protocol: TCP, port: {{ . }} }
    {{- end }}
  {{- with .kafka.to }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with .egress }}
{{ toYaml . }}
{{- end }}
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
{{- with .Values.gateway -}}
{{- if and .ingress.host (not .keys.secret) -}}
{{- fail "gateway.ingress.host: no gateway runs; name the Secret of its keys in gateway.keys.secret" -}}
{{- end -}}
{{- $set := $config.gateway | default dict -}}
{{- if or $set.keys $set.listen -}}
{{- fail "config.gateway: the chart sets listen and keys; name the Secret of the keys in gateway.keys" -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .Values.secrets.files -}}
{{- if has $name (list "tenants" "gateway") -}}
{{- fail (printf "secrets.files.%s: is the directory of %s; take another name" $name (eq $name "gateway" | ternary "gateway.keys" "secrets.tenants")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
