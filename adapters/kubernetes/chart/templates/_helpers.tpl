{{/* The image, by its digest where one is named. */}}
{{- define "nhc.image" -}}
{{- $repository := required "image.repository: say where you pushed the image (adapters/kubernetes/Containerfile)" .Values.image.repository -}}
{{- if .Values.image.digest }}{{ $repository }}@{{ .Values.image.digest }}{{ else }}{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- define "nhc.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* What every name begins with. A longer one than a StatefulSet's label has room for is cut, and stays its release's own. */}}
{{- define "nhc.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $whole := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $whole = .Values.fullnameOverride | default $whole | replace "." "-" -}}
{{ ternary (printf "%s-%s" ($whole | trunc 36 | trimSuffix "-") ($whole | sha256sum | trunc 7)) $whole (gt (len $whole) 44) }}
{{- end -}}

{{- define "nhc.labels" -}}
app.kubernetes.io/name: {{ include "nhc.name" . }}
app.kubernetes.io/part-of: nhc
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* The agents' namespace, and the privileged pods of repairs beside them. */}}
{{- define "nhc.agentNamespace" -}}
{{ .Values.agentNamespace.name | default .Release.Namespace }}
{{- end -}}

{{/* The ServiceAccount of a part: (list $ "controller"). */}}
{{- define "nhc.account" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{ (index $root.Values $part).serviceAccount.name | default (printf "%s-%s" (include "nhc.fullname" $root) $part) }}
{{- end -}}

{{/* The labels of a part's pods: (list $ "controller" dict). The chart's own stand, whatever a user says. */}}
{{- define "nhc.podLabels" -}}
{{- $root := index . 0 -}}
{{- $own := merge (dict "app.kubernetes.io/component" (index . 1)) (index . 2) (fromYaml (include "nhc.labels" $root)) -}}
{{ toYaml (mergeOverwrite (dict) $root.Values.podLabels (index $root.Values (index . 1)).podLabels $own) }}
{{- end -}}

{{/* Their annotations: (list $ "controller" dict). A user's stand in place of the chart's. */}}
{{- define "nhc.podAnnotations" -}}
{{- $root := index . 0 -}}
{{ toYaml (mergeOverwrite (dict) (index . 2) $root.Values.podAnnotations (index $root.Values (index . 1)).podAnnotations) }}
{{- end -}}

{{/* More of a container's environment: (list $ "controller"). */}}
{{- define "nhc.extraEnv" -}}
{{- $root := index . 0 -}}
{{- if ne $root.Values.log.level "info" }}
- {name: NHC_LOG_LEVEL, value: {{ $root.Values.log.level }}}
{{- end }}
{{- if ne $root.Values.log.format "text" }}
- {name: NHC_LOG_FORMAT, value: {{ $root.Values.log.format }}}
{{- end }}
{{- with concat $root.Values.extraEnv (index $root.Values (index . 1)).extraEnv }}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{- define "nhc.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Where the pods of a part may run, and not all on one node: (list $ "server"). */}}
{{- define "nhc.placement" -}}
{{- $root := index . 0 -}}
{{- $part := index $root.Values (index . 1) -}}
{{- with $part.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- else }}
affinity: {{- include "nhc.apart" . | nindent 2 }}
{{- end }}
{{- with $part.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
tolerations: {{- include "nhc.tolerations" . | nindent 2 }}
{{- with $part.tolerations }}
{{ toYaml . | indent 2 }}
{{- end -}}
{{- end -}}

{{/* What conditions are called on nodes of one kind. */}}
{{- define "nhc.vocabularies" -}}
{{- $names := .root.Values.agent.vocabularies -}}
{{- if eq .kind "neuron" }}{{ $names = append $names "neuron" | uniq }}{{ end -}}
{{ $names | toJson }}
{{- end -}}

{{/* The nodes of one kind. */}}
{{- define "nhc.nodes" -}}
{{- if eq . "nvidia" -}}
- matchExpressions: [{key: nvidia.com/gpu.present, operator: In, values: ["true"]}]
- matchExpressions: [{key: feature.node.kubernetes.io/pci-10de.present, operator: In, values: ["true"]}]
{{- else if eq . "amd" -}}
- matchExpressions: [{key: feature.node.kubernetes.io/amd-gpu, operator: In, values: ["true"]}]
- matchExpressions: [{key: feature.node.kubernetes.io/pci-1002.present, operator: In, values: ["true"]}]
{{- else if eq . "neuron" -}}
- matchExpressions: [{key: karpenter.k8s.aws/instance-accelerator-manufacturer, operator: In, values: [aws]}]
- matchExpressions:
    - key: node.kubernetes.io/instance-type
      operator: In
      values: [inf1.xlarge, inf1.2xlarge, inf1.6xlarge, inf1.24xlarge, inf2.xlarge, inf2.8xlarge, inf2.24xlarge, inf2.48xlarge, trn1.2xlarge, trn1.32xlarge, trn1n.32xlarge, trn2.48xlarge]
{{- else if eq . "gaudi" -}}
- matchExpressions: [{key: intel.feature.node.kubernetes.io/gaudi, operator: In, values: ["true"]}]
- matchExpressions: [{key: feature.node.kubernetes.io/pci-1da3.present, operator: In, values: ["true"]}]
{{- else -}}
- matchExpressions:
    - {key: nvidia.com/gpu.present, operator: NotIn, values: ["true"]}
    - {key: feature.node.kubernetes.io/pci-10de.present, operator: NotIn, values: ["true"]}
    - {key: feature.node.kubernetes.io/amd-gpu, operator: NotIn, values: ["true"]}
    - {key: feature.node.kubernetes.io/pci-1002.present, operator: NotIn, values: ["true"]}
    - {key: intel.feature.node.kubernetes.io/gaudi, operator: NotIn, values: ["true"]}
    - {key: feature.node.kubernetes.io/pci-1da3.present, operator: NotIn, values: ["true"]}
    - {key: karpenter.k8s.aws/instance-accelerator-manufacturer, operator: NotIn, values: [aws]}
    - key: node.kubernetes.io/instance-type
      operator: NotIn
      values: [inf1.xlarge, inf1.2xlarge, inf1.6xlarge, inf1.24xlarge, inf2.xlarge, inf2.8xlarge, inf2.24xlarge, inf2.48xlarge, trn1.2xlarge, trn1.32xlarge, trn1n.32xlarge, trn2.48xlarge]
{{- end -}}
{{- end -}}

{{/* Fails where TOML of the user's own has a table that this chart writes itself: a table may stand once. */}}
{{- define "nhc.tables" -}}
{{- $text := .text -}}
{{- $where := .where -}}
{{- range .taken -}}
{{- if regexMatch (printf "(?m)^\\s*\\[\\s*%s\\s*\\]" (replace "." "\\s*\\.\\s*" .)) $text -}}
{{- fail (printf "%s: the table [%s] is the chart's own, and a table may stand once: use the chart's values for it" $where .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Where the store is: in a Secret, never in an argument or a ConfigMap. */}}
{{- define "nhc.store" -}}
- name: NHC_STORE
  valueFrom: {secretKeyRef: {name: {{ required "store.secret: name the Secret whose key url is the store" .Values.store.secret }}, key: url}}
{{- end -}}

{{/* A process without rights on its node. */}}
{{- define "nhc.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "nhc.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* The nodes that the loop and its neighbours may run on, as the controller. */}}
{{- define "nhc.tolerations" -}}
- {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}
- {key: CriticalAddonsOnly, operator: Exists}
- {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
- {key: amd.com/gpu, operator: Exists, effect: NoSchedule}
- {key: aws.amazon.com/neuron, operator: Exists, effect: NoSchedule}
- {key: habana.ai/gaudi, operator: Exists, effect: NoSchedule}
- {key: sku, operator: Equal, value: gpu, effect: NoSchedule}
{{- end -}}

{{- define "nhc.apart" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {app.kubernetes.io/component: {{ index . 1 }}, app.kubernetes.io/instance: {{ (index . 0).Release.Name }}}
{{- end -}}

{{/* A volume of a pod's own. */}}
{{- define "nhc.claim" -}}
- metadata: {name: state}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .className }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ .size }}}}
{{- end -}}

{{/* A value of TOML: JSON writes texts, numbers, flags and lists as TOML does. */}}
{{- define "nhc.toml" -}}
{{- range $key, $value := . }}
{{ $key }} = {{ $value | toJson }}
{{- end }}
{{- end -}}
