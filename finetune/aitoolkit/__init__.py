"""Fine-tuning with ai-toolkit, unmodified: started as a process, monitored and controlled here."""
