"""Written by nhc.data.generate from kernel.tsv and repeats.tsv: do not edit."""

# ruff: noqa
# fmt: off
KERNEL = r"""
xid				NVRM	NVRM: Xid	NVRM: Xid \((?:PCI:)?(?P<device>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?:, *(?P<words>.*))?		
sxid				SXid (	SXid (	(?P<switch>nvidia-nvswitch\d+): SXid \(PCI:(?P<device>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?:, *(?P<words>.*))?		
nvrm	GpuFallenOffBus	fatal	reboot	NVRM	has fallen off the bus||fallen off the bus and is not responding	NVRM: (?:GPU (?:at )?(?:PCI:)?(?P<device>[0-9a-fA-F:]+(?:\.[0-7])?):? (?:GPU )?has fallen off the bus|(?:\(PCI ID: \S+\) installed in this system has )?fallen off the bus and is not responding)	GPU has fallen off the bus	
nvrm	AdapterInitFailed	fatal	reboot	NVRM	RmInitAdapter failed||rm_init_adapter failed	NVRM: (?:GPU (?P<device>[0-9a-fA-F:]+\.[0-7]): )?(?:RmInitAdapter failed!? ?(?P<detail>\([^)]*\))?|rm_init_adapter failed)	GPU could not be initialised	
nvrm	ProbeFailed	fatal	reload-driver	nvidia: probe of	nvidia: probe of	nvidia: probe of (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) failed with error (?P<detail>-\d+)	the NVIDIA driver did not take the GPU	
nvrm	VbiosUnreadable	fatal	inspect	NVRM	copy vbios to system memory||Failed to read the VBIOS	NVRM: (?:GPU (?P<device>[0-9a-fA-F:]+\.[0-7]): )?[Ff]ailed to (?:copy vbios to system memory|read the VBIOS)	the GPU's VBIOS cannot be read	
nvrm	BarInvalid	fatal	inspect	NVRM	PCI I/O region assigned to your NVIDIA device is invalid	NVRM: This PCI I/O region assigned to your NVIDIA device is invalid	the BIOS gave the GPU no usable address range	
nvrm	GspNeedsReset	fatal	reset-device	NVRM	Rate limiting GSP RPC error prints	NVRM: Rate limiting GSP RPC error prints for GPU at PCI:(?P<device>[0-9a-fA-F:.]+)	the GPU's firmware stopped answering	
nvrm	ApiMismatch	degraded	reload-driver	NVRM	NVRM: API mismatch	NVRM: API mismatch	loaded kernel module and user libraries differ in version	
nvrm	PeermemContext	degraded	restart-app	nv_get_p2p_free_callback	nv_get_p2p_free_callback	nv_get_p2p_free_callback:\d+ ERROR detected invalid context	nvidia-peermem met an invalid context	
nvrm	NvlinkDetectFailed	degraded	inspect	NVRM	ostRxDetLinkMask failed||Rx Detect Link mask	NVRM: (?:GPU at (?:PCI:)?(?P<device>[0-9a-fA-F:.]+): )?knvlink\w+: (?:Getting|Failed to update)	NVLink did not find its peers	
nvrm	RcAllChannels	info	none	NVRM	RC all channels for critical error	NVRM: .*RC all channels for critical error (?P<detail>\d+)	all channels of a GPU were reset after an Xid	
nvrm	DriverLoaded	info	none	NVRM	NVRM: loading NVIDIA UNIX	NVRM: loading NVIDIA UNIX .*?Kernel Module (?:for \S+ )? *(?P<driver>\d+\.\d+(?:\.\d+)?)	the NVIDIA driver was loaded	all:xid all:nvrm all:sxid
nvrm	Subject			NVRM	NVRM: The NVIDIA GPU	NVRM: The NVIDIA GPU (?P<device>[0-9a-fA-F:]+\.[0-7])		
amdgpu	RasUncorrectable	fatal	reset-device	amdgpu	uncorrectable hardware error	amdgpu (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:amdgpu: )?(?:\{\d+\})?(?: ?socket: \d+,?)?(?: die: \d+,?)? ?(?:(?P<detail>[1-9]\d*) (?:new )?uncorrectable hardware errors detected in (?:total in )?\w+ block|uncorrectable hardware error ?\()	uncorrectable errors in a RAS block	
amdgpu	RasDeferred	degraded	inspect	amdgpu	deferred hardware error	amdgpu (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:amdgpu: )?.*?(?P<detail>[1-9]\d*) (?:new )?deferred hardware errors detected in (?:total in )?\w+ block	deferred (poisoned) errors in a RAS block	
amdgpu	RasCorrectable	info	none	amdgpu	 correctable hardware error	amdgpu (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:amdgpu: )?.*?(?P<detail>[1-9]\d*) (?:new )?correctable hardware errors detected in (?:total in )?\w+ block	corrected errors in a RAS block	
amdgpu	RasEvent	fatal	reset-device	amdgpu	ERREVENT_ATHUB_INTERRUPT	amdgpu (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:amdgpu: )?.*ERREVENT_ATHUB_INTERRUPT	a fatal RAS interrupt	
amdgpu	BadPageThreshold	fatal	replace	amdgpu	reaches threshold value||exceed threshold||exceeds threshold	amdgpu (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:amdgpu: )?.*(?:saved bad pages|RAS records|bad page).*(?:reaches threshold value|exceeds? threshold)	retired pages have reached the limit	
amdgpu	GpuResetFailed	fatal	reboot	amdgpu	GPU reset(||GPU reset end with ret	amdgpu (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:amdgpu: )?(?:GPU reset\(\d+\) failed|GPU reset end with ret = -\d+)	a GPU reset failed	
amdgpu	GpuResetDone	info	none	amdgpu	GPU reset(	amdgpu (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:amdgpu: )?GPU reset\(\d+\) succeeded	a GPU reset succeeded	device:amdgpu
amdgpu	GpuResetBegin	degraded	inspect	amdgpu	GPU reset begin	amdgpu (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:amdgpu: )?GPU reset begin	the driver is resetting the GPU	
amdgpu	RingTimeout	degraded	restart-app	amdgpu	 timeout, signaled seq	amdgpu (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): .*ring \S+ timeout	a queue stopped making progress	
amdgpu	DeviceLost	fatal	reboot	amdgpu	device lost from bus	amdgpu (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:amdgpu: )?.*device lost from bus	GPU has fallen off the bus	
amdgpu	InitFailed	fatal	reboot	amdgpu	Fatal error during GPU init||amdgpu: probe of	(?:amdgpu (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:amdgpu: )?Fatal error during GPU init|amdgpu: probe of (?P<device2>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) failed with error)	GPU could not be initialised	
amdgpu	PageFault	app	restart-app	amdgpu	page fault (src_id	amdgpu (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:amdgpu: )?(?:\[\w+\] )?(?:no-)?(?:retry )?page fault \(src_id	an application touched memory it does not own	
neuron		fatal	replace	NEURON_HW_ERR=	NEURON_HW_ERR=	(?:^|\s)NEURON_HW_ERR=(?P<code>[A-Z_0-9]+)(?:\s+(?P<words>.*))?$		
habanalabs	HardReset	degraded	inspect	Going to hard-reset	Going to hard-reset	habanalabs (?P<device>\S+?): .*Going to hard-reset	the driver is resetting the device	
mlx5	HealthCompromised	fatal	reload-driver	mlx5_core	health compromised - reached miss count	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? .*device's health compromised - reached miss count	the adapter's firmware stopped answering	
mlx5	FirmwareError	fatal	reload-driver	mlx5_core	Health issue observed, firmware internal error||synd 0x	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? .*(?:Health issue observed, (?P<detail>[^,]+), severity\((?P<level>[0-4])\)|synd 0x[0-9a-f]+: (?P<detail2>firmware internal error|unrecoverable hardware error|irisc not responding|async EQ buffer overrun|EQ invalid|EQ_INV|FFSER error|unrecoverable error))	the adapter's firmware reports an error	
mlx5	FatalSensor	fatal	reload-driver	mlx5_core	mlx5_core	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? (?:\S+: ?)*Fatal error (?P<detail>\d+) detected	the adapter reports a fatal state	
mlx5	CommandTimeout	fatal	reload-driver	mlx5_core	Will cause a leak of a command resource	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? .*timeout\. Will cause a leak of a command resource	the adapter does not answer commands	
mlx5	RecoveryFailed	fatal	reboot	mlx5_core	health recovery flow aborted||health recovery failed	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? .*health recovery (?:flow aborted|failed)	the adapter did not recover	
mlx5	Recovered	info	none	mlx5_core	health recovery succe	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? .*health recovery succe	the adapter recovered	device:mlx5
mlx5	CableError	degraded	inspect	mlx5_core	Port module event	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? .*Port module event(?:\[error\])?: module \d+, Cable error, (?P<detail>.+)	the cable or transceiver reports an error	
mlx5	CableUnplugged	degraded	inspect	mlx5_core	Port module event	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? .*Port module event(?:\[error\])?: module \d+, Cable unplugged	a cable was pulled	
mlx5	CablePlugged	info	none	mlx5_core	Port module event	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? .*Port module event: module \d+, Cable plugged	a cable was plugged in	device:mlx5/CableUnplugged device:mlx5/CableError
mlx5	PcieLowPower	degraded	inspect	mlx5_core	Detected insufficient power on the PCIe slot	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? .*Detected insufficient power on the PCIe slot \((?P<detail>\w+)\)	the slot gives too little power	
mlx5	HighTemperature	degraded	inspect	mlx5_core	High temperature on sensors	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? .*High temperature on sensors	the adapter is too hot	
mlx5	LinkDown	degraded	inspect	: Link down	: Link down	(?:mlx5_core|mlx5_ib|mlx4_en:?) (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?: (?P<port>\S+))?: Link down	a port went down	
mlx5	LinkUp	info	none	: Link up	: Link up	(?:mlx5_core|mlx5_ib|mlx4_en:?) (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?: (?P<port>\S+))?: Link up	a port came up	device:mlx5/LinkDown
mlx5	CommandFailed	info	none	mlx5_core	mlx5_cmd_out_err||mlx5_cmd_check	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]):? .*mlx5_cmd_(?:out_err|check):\d+:\(pid \d+\): (?P<detail>\w+)\(0x[0-9a-f]+\).*failed	the adapter refused a command	
mlx5	CqeError	app	restart-app	dump error cqe	dump error cqe	(?:infiniband )?(?P<device>mlx5_\d+): .*dump error cqe	a work request failed	
mlx5	TxTimeout	degraded	reload-driver	mlx5_core	TX timeout detected	mlx5_core (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?: \S+)?: .*TX timeout detected	a send queue is stuck	
efa	CommandTimeout	fatal	reload-driver	efa 	Wait for completion (polling) timeout||Completion didn't occur||efa_com	efa (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?: \S+)?: .*(?:Wait for completion \(polling\) timeout|Completion didn't occur|did ?n.t receive)	EFA does not answer commands	
efa	CommandFailed	degraded	inspect	efa 	Failed to process command||Failed to submit command	efa (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?: \S+)?: Failed to (?:process|submit) command (?P<detail>\S+)	EFA refused a command	
efa	InitFailed	fatal	reload-driver	efa: probe of||Failed to reset device||Reset indication didn't turn	efa: probe of||Failed to reset device||Reset indication didn't turn	efa(?:: probe of)? (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?: failed with error|.*(?:Failed to reset device|Reset indication didn't turn))	EFA could not be initialised	
net	UnregisterStuck	degraded	reboot	unregister_netdevice: waiting for	unregister_netdevice: waiting for	unregister_netdevice: waiting for (?P<device>\S+) to become free	a network device cannot be removed	
net	TxTimeout	degraded	inspect	NETDEV WATCHDOG:	NETDEV WATCHDOG:	NETDEV WATCHDOG: (?P<device>\S+) ?\(	a network device's send queue timed out	
aer	UncorrectedFatal	fatal	reboot	PCIe Bus Error	PCIe Bus Error: severity=Uncorrect	(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Fatal\)(?:, type=(?P<detail>[^,]+))?	uncorrectable fatal PCIe error	
aer	UncorrectedNonFatal	degraded	inspect	PCIe Bus Error	PCIe Bus Error: severity=Uncorrect	(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Non-Fatal\)(?:, type=(?P<detail>[^,]+))?	uncorrectable PCIe error, not fatal	
aer	Corrected	info	none	PCIe Bus Error	PCIe Bus Error: severity=Correct	(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:AER: )?PCIe Bus Error: severity=Correct(?:ed|able)(?:, type=(?P<detail>[^,]+))?	corrected PCIe error	
aer	UncorrectedFatal	fatal	reboot	AER:	(Fatal) error	AER: (?:Multiple )?Uncorrect(?:ed|able) \(Fatal\) error (?:message )?received(?: from|:) (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])	uncorrectable fatal PCIe error	
aer	UncorrectedNonFatal	degraded	inspect	AER:	(Non-Fatal) error	AER: (?:Multiple )?Uncorrect(?:ed|able) \(Non-Fatal\) error (?:message )?received(?: from|:) (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])	uncorrectable PCIe error, not fatal	
aer	Corrected	info	none	AER:	AER: Correct||AER: Multiple Correct	AER: (?:Multiple )?Correct(?:ed|able) error (?:message )?received(?: from|:) (?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])	corrected PCIe error	
aer	RecoveryFailed	fatal	reboot	AER:	AER: device recovery failed	(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): AER: device recovery failed	a PCIe device did not recover	
aer	Recovered	info	none	AER:	AER: device recovery successful	(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): AER: device recovery successful	a PCIe device recovered	device:aer
pcie	Contained	fatal	reboot	DPC: containment event	DPC: containment event	(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): DPC: containment event	a PCIe port cut off its device	
pcie	Inaccessible	fatal	reboot	device inaccessible	device inaccessible	(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): .*device inaccessible	a PCIe device no longer answers	
pcie	NotReady	fatal	reboot	; giving up	; giving up	(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): not ready \d+ms after .*; giving up	a PCIe device did not come back from its reset	
pcie	SlotLinkDown	degraded	inspect	pciehp	pciehp: Slot(	(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): pciehp: Slot\((?P<detail>[^)]*)\): (?:Link Down|Card not present)	a PCIe slot lost its link	
pcie	SlotLinkUp	info	none	pciehp	pciehp: Slot(	(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): pciehp: Slot\((?P<detail>[^)]*)\): (?:Link Up|Card present)	a PCIe slot has its link	device:pcie/SlotLinkDown
pcie	AddressFault	info	none	DMAR: [DMA||AMD-Vi: Event logged	DMAR: [DMA||AMD-Vi: Event logged	(?:DMAR: \[DMA .*Request device \[(?P<detail>[0-9a-f:.]+)\]|AMD-Vi: Event logged \[IO_PAGE_FAULT (?:device|domain)=)	a device touched memory it may not	
mce	FatalMachineCheck	fatal	reboot	Fatal machine check||Machine Check Exception||System Fatal error||Fatal Machine check	Fatal machine check||Machine Check Exception||System Fatal error||Fatal Machine check	(?:Kernel panic - not syncing: Fatal [Mm]achine check|Machine Check Exception: +(?P<detail>\S+ Bank \d+)|System Fatal error)	a fatal machine check	
mce	Uncorrected	fatal	inspect	Uncorrected, software||Uncorrected hardware memory error	Uncorrected, software||Uncorrected hardware memory error	(?:\[Hardware Error\]: Uncorrected, software (?P<detail>restartable|containable) error|Uncorrected hardware memory error in user-access at (?P<detail2>\w+))	an uncorrected machine check	
mce	Deferred	degraded	inspect	[Hardware Error]	[Hardware Error]: Deferred error	\[Hardware Error\]: Deferred error	a deferred (poisoned) memory error	
mce	Corrected	info	none	Corrected error, no action required||Machine check events logged	Corrected error, no action required||Machine check events logged	(?:Corrected error, no action required|Machine check events logged)	corrected machine checks	
mce	MachineCheck	degraded	inspect	[Hardware Error]	: Machine Check: 	\[Hardware Error\]: CPU (?P<device>\d+): Machine Check: \d+ Bank (?P<detail>\d+): (?P<status>[0-9a-f]{16})	a machine check was logged	
mce	PageRecovered	degraded	inspect	Memory failure: 	Memory failure: 	Memory failure: (?P<detail>0x[0-9a-f]+): recovery action for .*: (?:Recovered|Delayed|Ignored)	a page with an uncorrectable error was taken out of use	
mce	PageLost	fatal	reboot	Memory failure: 	Memory failure: 	Memory failure: (?P<detail>0x[0-9a-f]+): recovery action for .*: Failed	a page with an uncorrectable error could not be taken out of use	
mce	Throttled	degraded	inspect	temperature above threshold	temperature above threshold	CPU(?P<device>\d+): (?:Core|Package) temperature above threshold	a processor is too hot and throttles	
mce	TemperatureNormal	info	none	temperature/speed normal	temperature/speed normal	CPU(?P<device>\d+): (?:Core|Package) temperature/speed normal	a processor has cooled down	device:mce/Throttled
edac	Uncorrected	fatal	replace	EDAC 	EDAC 	EDAC (?P<device>MC\d+): (?:(?P<detail>\d+) )?UE 	an uncorrectable memory error	
edac	Corrected	info	none	EDAC 	EDAC 	EDAC (?P<device>MC\d+): (?:(?P<detail>\d+) )?CE 	corrected memory errors	
ghes	Bert	info	none	Error records from previous boot	Error records from previous boot	BERT: Error records from previous boot	the firmware kept an error from before this boot	
ghes	Fatal	fatal	reboot	[Hardware Error]	event severity: fatal	(?P<detail>\{\d+\})?\[Hardware Error\]: event severity: fatal	the firmware reports a fatal hardware error	
ghes	Recoverable	degraded	inspect	[Hardware Error]	event severity: recoverable	(?P<detail>\{\d+\})?\[Hardware Error\]: event severity: recoverable	the firmware reports a recoverable hardware error	
ghes	Corrected	info	none	[Hardware Error]	event severity: corrected||event severity: info	(?P<detail>\{\d+\})?\[Hardware Error\]: event severity: (?:corrected|info)	the firmware reports a corrected hardware error	
nvme	Disabled	fatal	reboot	nvme nvme	Disabling device after reset failure||Removing after probe failure	nvme (?P<device>nvme\d+): (?:Disabling device after reset failure|Removing after probe failure)	an NVMe controller was given up	
nvme	Down	fatal	reboot	nvme nvme	controller is down; will reset	nvme (?P<device>nvme\d+): controller is down; will reset: CSTS=(?P<detail>\S+?),	an NVMe controller went down	
nvme	NotReady	fatal	reboot	nvme nvme	Device not ready; aborting	nvme (?P<device>nvme\d+): Device not ready; aborting (?:reset|initiali[sz]ation)	an NVMe controller did not come back	
nvme	Timeout	degraded	inspect	nvme nvme	timeout, reset controller||timeout, aborting||timeout, disable controller||timeout, completion polled	nvme (?P<device>nvme\d+): I/O (?:tag )?.*timeout, (?P<detail>reset controller|aborting|disable controller|completion polled)	NVMe commands time out	
nvme	Ready	info	none	nvme nvme	default/read/poll queues	nvme (?P<device>nvme\d+): \d+/\d+/\d+ default/read/poll queues	an NVMe controller is ready	device:nvme/Down device:nvme/Timeout device:nvme/NotReady
nvme	NoPath	fatal	inspect	no available path - failing I/O	no available path - failing I/O	block (?P<device>nvme\S+?): no available path - failing I/O	no path to an NVMe namespace is left	
nvme	MediaError	degraded	replace	Unrecovered Read Error||Write Fault	Unrecovered Read Error||Write Fault	(?P<device>nvme\S+?): \w+\(0x[0-9a-f]+\) @ LBA \d+.*(?:Unrecovered Read Error|Write Fault)	an NVMe drive lost data	
block	MediumError	degraded	replace	critical medium error	critical medium error	critical medium error, dev (?P<device>\S+?), sector (?P<detail>\d+)	a drive cannot read its medium	
block	TargetError	degraded	inspect	critical target error||critical space allocation error	critical target error||critical space allocation error	critical (?P<detail>target|space allocation) error, dev (?P<device>\S+?), sector	a drive refused a request	
block	IoError	degraded	inspect	I/O error, dev 	I/O error, dev 	I/O error, dev (?P<device>\S+?), sector (?P<detail>\d+)	a drive failed a request	
block	BufferError	degraded	inspect	Buffer I/O error on dev	Buffer I/O error on dev	Buffer I/O error on dev(?:ice)? (?P<device>\S+?), logical block (?P<detail>\d+)	a block could not be read or written	
block	Offline	fatal	inspect	rejecting I/O to offline device||rejecting I/O to dead device	rejecting I/O to offline device||rejecting I/O to dead device	(?:\[(?P<device>sd\w+)\] )?rejecting I/O to (?:offline|dead) device	a drive is offline	
block	BeyondEnd	degraded	inspect	attempt to access beyond end of device	attempt to access beyond end of device	attempt to access beyond end of device	a request reached beyond a drive's end	
block	AtaException	degraded	inspect	: exception Emask	: exception Emask	(?P<device>ata[\d.]+): exception Emask	a SATA link or drive reports an error	
md	ArrayFailed	fatal	inspect	Cannot continue operation||detected, failing array	Cannot continue operation||detected, failing array	md/raid\w*:(?P<device>\w+): (?:Cannot continue operation|Disk failure on (?P<detail>\S+) detected, failing array)	a RAID array failed	
md	DiskFailed	degraded	replace	Disk failure on 	Disk failure on 	md/raid\w*:(?P<device>\w+): Disk failure on (?P<detail>[^ ,]+)	a RAID array lost a disk	
md	RecoveryDone	info	none	: recovery done.	: recovery done.	md: (?P<device>\w+): recovery done\.	a RAID array is whole again	device:md/DiskFailed
ext4	ReadOnly	fatal	reboot	Remounting filesystem read-only	Remounting filesystem read-only	(?:EXT4-fs|EXT3-fs|BTRFS|F2FS-fs)?[^:]*\((?:device )?(?P<device>[^)]+)\).*Remounting filesystem read-only|Remounting filesystem read-only	a file system was made read-only after an error	
ext4	JournalAborted	fatal	reboot	Aborting journal on device||Detected aborted journal	Aborting journal on device||Detected aborted journal	(?:Aborting journal on device (?P<device>\S+?)\.|EXT4-fs error \(device (?P<device2>[^)]+)\).*Detected aborted journal)	a file system's journal was aborted	
ext4	Error	degraded	inspect	EXT4-fs	EXT4-fs error	EXT4-fs error \(device (?P<device>[^)]+)\)	a file system is damaged	
ext4	SuperblockWrite	degraded	inspect	EXT4-fs	I/O error while writing superblock	EXT4-fs \((?P<device>[^)]+)\): I/O error while writing superblock	a superblock could not be written	
ext4	Warning	info	none	EXT4-fs	EXT4-fs warning	EXT4-fs warning \(device (?P<device>[^)]+)\)	a file system warns	
xfs	Shutdown	fatal	reboot	XFS (	Shutting down filesystem||Filesystem has been shut down||shutting down filesystem	XFS \((?P<device>[^)]+)\): .*(?:[Ss]hutting down filesystem|Filesystem has been shut down)	a file system shut itself down	
xfs	Corruption	degraded	inspect	XFS (	orruption detected||orruption warning	XFS \((?P<device>[^)]+)\): .*[Cc]orruption (?:detected|warning)	a file system is damaged	
xfs	IoError	degraded	inspect	XFS (	XFS (	XFS \((?P<device>[^)]+)\): .*(?:metadata|log|writeback) I/O error	a file system's metadata could not be read or written	
nfs	ServerNotResponding	degraded	inspect	not responding	not responding	nfs: server (?P<device>\S+) not responding	an NFS server does not answer	
nfs	ServerOk	info	none	nfs: server 	nfs: server 	nfs: server (?P<device>\S+) OK	an NFS server answers again	device:nfs/ServerNotResponding
nfs	ReclaimFailed	degraded	restart-app	Lock reclaim failed	Lock reclaim failed	Lock reclaim failed	locks were lost when an NFS server restarted	
nfs	StateManager	degraded	inspect	state manager: 	state manager: 	NFS: state manager: .*failed on NFSv4 server (?P<device>\S+) with error (?P<detail>\d+)	an NFSv4 server's state was lost	
lustre	Bug	fatal	reboot	Lustre	LBUG||ASSERTION(	LustreError: .*(?:LBUG|ASSERTION\(.*\) failed)	Lustre stopped on an assertion	
lustre	Evicted	degraded	inspect	Lustre	was evicted by	LustreError: .*This client was evicted by (?P<device>[^;\s]+)	a Lustre server evicted this client	
lustre	ConnectionLost	degraded	inspect	Lustre	was lost; in progress operations	Lustre: .*Connection to (?P<device>\S+) .*was lost; in progress operations	the connection to a Lustre server was lost	
lustre	ConnectionRestored	info	none	Lustre	Connection restored to	Lustre: .*Connection restored to (?P<device>\S+)	the connection to a Lustre server is back	device:lustre/ConnectionLost device:lustre/Evicted
lustre	Error	info	none	Lustre	LustreError:	LustreError: 	Lustre reports an error	
oom	ContainerOom	app	restart-app	Memory cgroup out of memory	Memory cgroup out of memory	Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d+) \((?P<detail>.*?)\)	a job or container went over its memory limit	
oom	ContainerOom	app	restart-app	killed as a result of limit of	killed as a result of limit of	Task in \S+ killed as a result of limit of (?P<device>\S+)	a job or container went over its memory limit	
oom	ContainerOom	app	restart-app	oom-kill:constraint=CONSTRAINT_MEMCG	oom-kill:constraint=CONSTRAINT_MEMCG	oom-kill:constraint=CONSTRAINT_MEMCG,.*?(?:oom_memcg=(?P<device>[^,]+)),.*task=(?P<detail>[^,]+)	a job or container went over its memory limit	
oom	NodeOom	degraded	inspect	oom-kill:constraint=	oom-kill:constraint=	oom-kill:constraint=(?:CONSTRAINT_NONE|CONSTRAINT_CPUSET|CONSTRAINT_MEMORY_POLICY),.*task=(?P<detail>[^,]+)	the node ran out of memory	
oom	NodeOom	degraded	inspect	Out of memory: Kill	Out of memory: Kill	Out of memory(?: \([^)]*\))?: Kill(?:ed)? process (?P<pid>\d+) \((?P<detail>.*?)\)	the node ran out of memory	
hung	TaskHung	degraded	inspect	blocked for more than	blocked for more than	task (?P<detail>.+?):\d+ (?:<\w+> )?(?:is )?blocked (?:on .*)?for more than (?P<seconds>\d+) seconds	a task is stuck in the kernel	
lockup	HardLockup	fatal	reboot	hard LOCKUP	hard LOCKUP	Watchdog detected hard LOCKUP on cpu (?P<device>\d+)	a processor is locked up	
lockup	SoftLockup	degraded	inspect	soft lockup	soft lockup	soft lockup - CPU#(?P<device>\d+) stuck for (?P<detail>\d+s!)	a processor ran the kernel without a break	
lockup	RcuStall	degraded	inspect	detected stall||self-detected stall	detected stall||self-detected stall	(?:rcu: )?(?:INFO: )?(?P<detail>rcu\w*) (?:self-)?detected (?:expedited )?stalls? on CPU	processors stall in the kernel	
lockup	WorkqueueLockup	degraded	inspect	workqueue lockup	workqueue lockup	BUG: workqueue lockup	a kernel work queue is stuck	
oops	Panic	fatal	reboot	Kernel panic - not syncing	Kernel panic - not syncing	Kernel panic - not syncing: (?P<detail>.*)	the kernel panicked	
oops	KernelBug	fatal	reboot	kernel BUG at	kernel BUG at	kernel BUG at (?P<detail>\S+?)!	the kernel met an impossible state	
oops	NullPointer	fatal	reboot	NULL pointer dereference	NULL pointer dereference	(?:BUG: (?:unable to handle )?kernel|[Uu]nable to handle kernel) NULL pointer dereference	the kernel used a null pointer	
oops	PageFault	fatal	reboot	unable to handle||Unable to handle kernel	unable to handle||Unable to handle kernel	(?:BUG: unable to handle (?:page fault|kernel paging request)|Unable to handle kernel (?:paging request|access))	the kernel touched memory that is not there	
oops	GeneralProtection	fatal	reboot	general protection fault	general protection fault	(?:^|Oops: )general protection fault(?:, probably|: \d|,)	the kernel was stopped by its own protection	
oops	DivideError	fatal	reboot	divide error: 	divide error: 	^(?:Oops: )?divide error: \d+ \[#\d+\]	the kernel divided by zero	
oops	Oops	fatal	reboot	Oops: ||invalid opcode: 	Oops: ||invalid opcode: 	(?:Oops: [0-9a-f]|Internal error: Oops|invalid opcode: \d+ \[#\d+\])	the kernel met a fault	
oops	BadState	degraded	reboot	BUG: Bad ||BUG: scheduling while atomic	BUG: Bad ||BUG: scheduling while atomic	BUG: (?P<detail>Bad \w+|scheduling while atomic)	the kernel found its own data damaged	
drill	Ended	info	none	nhc-drill ended	nhc-drill ended	nhc-drill ended	the drill is over: what it made of this log no longer stands	drills:
"""
REPEATS = r"""
xid	13	2	86400	180	unit	clean	fatal	inspect	24h
xid	31	3	86400	180	device	clean	fatal	inspect	24h
xid	43	5	86400	180	device	clean	fatal	inspect	24h
xid	45	5	86400	180	device	clean	fatal	inspect	24h
xid	94	3	86400	180	device	any	fatal	reset-device	24h
xid	119	2	86400	180	device	any	fatal	reboot	24h
xid	120	2	86400	180	device	any	fatal	reboot	24h
xid	*fatal	5	86400	180	device	any	fatal	replace	24h
aer	Corrected	100	3600	0	device	any	degraded	inspect	1h
aer	UncorrectedNonFatal	3	86400	60	device	any	fatal	reboot	24h
hung	TaskHung	10	3600	0	device	any	fatal	reboot	1h
lockup	SoftLockup	3	3600	60	device	any	fatal	reboot	1h
nvme	Timeout	3	86400	60	device	any	fatal	inspect	24h
block	MediumError	5	86400	60	device	any	fatal	replace	24h
mlx5	LinkDown	5	3600	1	device	any	degraded	inspect	1h
"""
